#pragma once
// What nodes tell node 0 of themselves from time to time: each one's newest report.
//
// Thread safety: any thread.
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "quire/error.h"

namespace quire::cluster {

class NodeReports {
 public:
  explicit NodeReports(size_t most_bytes) : most_bytes_(most_bytes) {}

  // As NodeGroup::on_report() says.
  void set_maker(std::function<std::vector<std::byte>()> maker) {
    const std::lock_guard lock(mutex_);
    maker_ = std::move(maker);
  }
  // This node's; empty without a maker.
  std::vector<std::byte> make() {
    const std::lock_guard lock(mutex_);
    std::vector<std::byte> report;
    if (maker_) report = maker_();
    check(report.size() <= most_bytes_, "a node's report is short");
    return report;
  }

  // Of another node. Throws Error where it is too long.
  void take(int from, std::vector<std::byte> report) {
    if (report.size() > most_bytes_) throw Error("a report too long");
    const std::lock_guard lock(mutex_);
    const auto place = static_cast<size_t>(from);
    if (place >= reports_.size()) reports_.resize(place + 1);
    reports_[place] = std::move(report);
  }
  // Empty if it has told nothing.
  std::vector<std::byte> of(int node) const {
    const std::lock_guard lock(mutex_);
    const auto place = static_cast<size_t>(node);
    return place < reports_.size() ? reports_[place] : std::vector<std::byte>();
  }

 private:
  const size_t most_bytes_;
  mutable std::mutex mutex_;
  std::function<std::vector<std::byte>()> maker_;
  std::vector<std::vector<std::byte>> reports_;  // by node
};

}  // namespace quire::cluster
