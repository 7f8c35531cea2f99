#pragma once
// Hundreds of millions of durations in half a megabyte: count, mean, standard deviation and maximum
// are exact, percentiles within 0.1 %.
//
// As in HdrHistogram, each power of two of nanoseconds is cut into the same number of equal
// buckets. Thread safety: one thread at a time.
#include <cstdint>
#include <vector>

namespace quire::loadgen {

class LatencyHistogram {
 public:
  LatencyHistogram();

  // Negative counts as 0.
  void add(double seconds);

  // All are 0 while it is empty.
  int64_t count() const { return count_; }
  double mean() const;
  double standard_deviation() const;
  double max() const { return max_; }
  // The smallest value that at least `share` of all values do not exceed; share in [0, 1].
  double percentile(double share) const;

 private:
  std::vector<int64_t> buckets_;
  int64_t count_ = 0;
  double mean_ = 0;
  double squared_distance_ = 0;  // from the mean, summed up (Welford)
  double max_ = 0;
};

}  // namespace quire::loadgen
