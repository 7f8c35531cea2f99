#include "server/observe/metrics_gaps.h"

#include <algorithm>
#include <utility>

namespace quire::server {

GapHistogram::GapHistogram(std::vector<double> boundaries)
    : boundaries_(std::move(boundaries)),
      counts_(std::make_unique<std::atomic<uint64_t>[]>(boundaries_.size() + 1)) {}

void GapHistogram::observe(double seconds, uint64_t count) {
  seconds = seconds > 0 ? seconds : 0;  // a NaN, too
  // From the front: most gaps are short, and there are few boundaries.
  const auto bucket = std::find_if(boundaries_.begin(), boundaries_.end(),
                                   [seconds](double bound) { return seconds <= bound; });
  counts_[static_cast<size_t>(bucket - boundaries_.begin())].fetch_add(count,
                                                                       std::memory_order_relaxed);
  sum_.fetch_add(seconds * static_cast<double>(count), std::memory_order_relaxed);
}

GapHistogram::Snapshot GapHistogram::snapshot() const {
  Snapshot snapshot;
  snapshot.cumulative_counts.reserve(boundaries_.size() + 1);
  uint64_t total = 0;
  for (size_t i = 0; i <= boundaries_.size(); ++i) {
    total += counts_[i].load(std::memory_order_relaxed);
    snapshot.cumulative_counts.push_back(total);
  }
  snapshot.sum = sum_.load(std::memory_order_relaxed);
  return snapshot;
}

}  // namespace quire::server
