#pragma once
// What the kernel says of this process, for the metrics that Prometheus expects of every process.
//
// Thread safety: pure functions of files in /proc.
#include <prometheus/metric_family.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace quire::server {

// Nothing where /proc does not say.
struct ProcessStats {
  std::optional<int64_t> resident_bytes{};
  std::optional<int64_t> virtual_bytes{};
  std::optional<double> start_time_s{};  // since the epoch
  std::optional<double> cpu_s{};         // user and system
  std::optional<int64_t> open_fds{};
  std::optional<int64_t> max_fds{};
};

ProcessStats read_process_stats();

// The families that say so.
void append_process(std::vector<prometheus::MetricFamily>& families);

// `stat` as in /proc/self/stat and `system_stat` as in /proc/stat, by proc(5).
ProcessStats parse_process_stats(std::string_view stat, std::string_view system_stat,
                                 int64_t ticks_per_second, int64_t page_bytes);

}  // namespace quire::server
