#pragma once
// A histogram of the gaps between output tokens, which is added to for every output of every
// stream: adding is a few relaxed atomic operations and never waits.
//
// Thread safety: every method from any thread. A snapshot taken while others add may hold a gap in
// its counts and not yet in its sum.
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace quire::server {

class GapHistogram {
 public:
  struct Snapshot {
    std::vector<uint64_t> cumulative_counts{};  // one a boundary, then all
    double sum = 0;
  };

  // Upper bounds, inclusive, ascending.
  explicit GapHistogram(std::vector<double> boundaries);

  // `count` gaps of `seconds` each; count >= 0. Clocks that step back give gaps of 0.
  void observe(double seconds, uint64_t count);
  Snapshot snapshot() const;
  const std::vector<double>& boundaries() const { return boundaries_; }

 private:
  std::vector<double> boundaries_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;  // one a boundary, and one beyond
  std::atomic<double> sum_{0};
};

}  // namespace quire::server
