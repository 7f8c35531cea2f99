#include "server/observe/metrics_process.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace quire::server {
namespace {

std::string read_file(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t start = text.find_first_not_of(" \n");
    if (start == std::string_view::npos) return fields;
    const size_t end = std::min(text.find_first_of(" \n", start), text.size());
    fields.push_back(text.substr(start, end - start));
    text.remove_prefix(end);
  }
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> boot_time(std::string_view system_stat) {
  constexpr std::string_view kKey = "\nbtime ";
  const size_t at = system_stat.find(kKey);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = system_stat.substr(at + kKey.size());
  return number(rest.substr(0, rest.find('\n')));
}

// The directory's own descriptor, open while it is read, is left out. std::filesystem's iterator
// would end the process where there is no memory.
std::optional<int64_t> count_open_fds() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return std::nullopt;
  int64_t count = -1;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(folder);
  return count;
}

}  // namespace

ProcessStats parse_process_stats(std::string_view stat, std::string_view system_stat,
                                 int64_t ticks_per_second, int64_t page_bytes) {
  ProcessStats result;
  // The second field, the program's name, may hold blanks and parentheses.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos || ticks_per_second <= 0) return result;
  const std::vector<std::string_view> fields = split(stat.substr(name_end + 1));
  // proc(5) counts from 1, and the third is the first here.
  const auto field = [&fields](size_t index) -> std::optional<int64_t> {
    return index - 3 < fields.size() ? number(fields[index - 3]) : std::nullopt;
  };
  const auto seconds = [ticks_per_second](int64_t ticks) {
    return static_cast<double>(ticks) / static_cast<double>(ticks_per_second);
  };
  const auto user = field(14);
  const auto system = field(15);
  if (user && system) result.cpu_s = seconds(*user + *system);
  const auto boot = boot_time(system_stat);
  const auto start = field(22);
  if (boot && start) result.start_time_s = static_cast<double>(*boot) + seconds(*start);
  result.virtual_bytes = field(23);
  if (const auto pages = field(24)) result.resident_bytes = *pages * page_bytes;
  return result;
}

ProcessStats read_process_stats() {
  ProcessStats stats = parse_process_stats(read_file("/proc/self/stat"), read_file("/proc/stat"),
                                           sysconf(_SC_CLK_TCK), sysconf(_SC_PAGESIZE));
  stats.open_fds = count_open_fds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  }
  return stats;
}

void append_process(std::vector<prometheus::MetricFamily>& families) {
  using prometheus::MetricType;
  const ProcessStats stats = read_process_stats();
  const auto add = [&families](std::string name, std::string help, MetricType type, auto value) {
    if (!value) return;
    prometheus::ClientMetric metric;
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        static_cast<double>(*value);
    families.push_back({std::move(name), std::move(help), type, {metric}});
  };
  add("process_resident_memory_bytes", "Memory that the process has in RAM.", MetricType::Gauge,
      stats.resident_bytes);
  add("process_virtual_memory_bytes", "Memory that the process has mapped.", MetricType::Gauge,
      stats.virtual_bytes);
  add("process_start_time_seconds", "When the process started, since the epoch.", MetricType::Gauge,
      stats.start_time_s);
  add("process_cpu_seconds_total", "Processor time of the process, user and system.",
      MetricType::Counter, stats.cpu_s);
  add("process_open_fds", "File descriptors that are open.", MetricType::Gauge, stats.open_fds);
  add("process_max_fds", "File descriptors that may be open.", MetricType::Gauge, stats.max_fds);
}

}  // namespace quire::server
