#include "base/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
// Address space that threads take without using it: glibc reserves 64 MiB for each heap, twice that
// while it makes one, and 8 MiB for each stack.
constexpr int64_t kThreadBytes = int64_t{512} << 20;

// A file of one number; "max", as cgroup v2 says it, is no limit.
int64_t read_limit(const fs::path& file) {
  std::ifstream in(file);
  int64_t limit = 0;
  return in >> limit && limit > 0 ? limit : kNoLimit;
}

// The files of a control group in one of its two versions.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* inactive;  // of memory.stat: file pages of it and of the groups below
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

int64_t inactive_bytes(const fs::path& group, std::string_view name) {
  std::ifstream stat(group / "memory.stat");
  std::string key;
  int64_t value = 0;
  while (stat >> key >> value) {
    if (key == name) return value;
  }
  return 0;
}

int64_t limit_of(const fs::path& group, const GroupFiles& files) {
  return read_limit(group / files.limit);
}

int64_t left_in(const fs::path& group, const GroupFiles& files) {
  const int64_t limit = limit_of(group, files);
  if (limit == kNoLimit) return kNoLimit;
  const int64_t used = read_limit(group / files.used);
  if (used == kNoLimit) return limit;
  return std::max<int64_t>(0, limit - used + inactive_bytes(group, files.inactive));
}

// The least `value_of` the group at `path` ("/system.slice/quire.service") and of all above it.
template <typename ValueOf>
int64_t least_above(const fs::path& hierarchy, std::string_view path, const GroupFiles& files,
                    ValueOf value_of) {
  int64_t least = kNoLimit;
  for (fs::path group = fs::path(path).relative_path();; group = group.parent_path()) {
    least = std::min(least, value_of(hierarchy / group, files));
    if (group.empty()) return least;
  }
}

// The least value_of(folder, files) over the process's groups. Lines of /proc/self/cgroup are
// "0::PATH" for v2 and "N:CONTROLLER,...:PATH" for v1.
template <typename ValueOf>
int64_t least_of_groups(const fs::path& root, ValueOf value_of) {
  const fs::path mounted = root / "sys/fs/cgroup";
  // A container may see its group as the top one, whatever its path says.
  int64_t least = std::min(value_of(mounted, kVersion2), value_of(mounted / "memory", kVersion1));
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string_view path = std::string_view(line).substr(second + 1);
    if (controllers == ",,") {
      least = std::min(least, least_above(mounted, path, kVersion2, value_of));
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, least_above(mounted / "memory", path, kVersion1, value_of));
    }
  }
  return least;
}

// A line of /proc/meminfo, in bytes.
int64_t machine_memory(const fs::path& root, std::string_view name) {
  std::ifstream meminfo(root / "proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (line.starts_with(name)) return std::stoll(line.substr(name.size())) * 1024;
  }
  return kNoLimit;
}

int64_t address_space_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kNoLimit));
}

int64_t address_space_left(const fs::path& root) {
  const int64_t limit = address_space_limit();
  if (limit == kNoLimit) return kNoLimit;
  int64_t num_pages = 0;
  std::ifstream(root / "proc/self/statm") >> num_pages;
  return std::max<int64_t>(0, limit - num_pages * ::sysconf(_SC_PAGESIZE) - kThreadBytes);
}

}  // namespace

int64_t memory_limit(const fs::path& root) {
  return std::min(
      {machine_memory(root, "MemTotal:"), least_of_groups(root, limit_of), address_space_limit()});
}

int64_t memory_left(const fs::path& root) {
  return std::min({machine_memory(root, "MemAvailable:"), least_of_groups(root, left_in),
                   address_space_left(root)});
}

}  // namespace quire
