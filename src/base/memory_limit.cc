#include "base/memory_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// A file of one number; "max", as cgroup v2 says it, is no limit.
int64_t read_limit(const fs::path& file) {
  std::ifstream in(file);
  int64_t limit = 0;
  return in >> limit && limit > 0 ? limit : kNoLimit;
}

// The limit of the group at `path` ("/system.slice/quire.service") and of all above it.
int64_t read_group_limits(const fs::path& hierarchy, std::string_view path,
                          const std::string& file) {
  int64_t least = kNoLimit;
  for (fs::path group = fs::path(path).relative_path();; group = group.parent_path()) {
    least = std::min(least, read_limit(hierarchy / group / file));
    if (group.empty()) return least;
  }
}

// Lines are "0::PATH" for v2 and "N:CONTROLLER,...:PATH" for v1.
int64_t control_group_limit(const fs::path& root) {
  const fs::path mounted = root / "sys/fs/cgroup";
  // A container may see its group as the top one, whatever its path says.
  int64_t least = std::min(read_limit(mounted / "memory.max"),
                           read_limit(mounted / "memory/memory.limit_in_bytes"));
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string_view path = std::string_view(line).substr(second + 1);
    if (controllers == ",,") {
      least = std::min(least, read_group_limits(mounted, path, "memory.max"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, read_group_limits(mounted / "memory", path, "memory.limit_in_bytes"));
    }
  }
  return least;
}

int64_t machine_memory(const fs::path& root) {
  std::ifstream meminfo(root / "proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    constexpr std::string_view kName = "MemTotal:";
    if (line.starts_with(kName)) return std::stoll(line.substr(kName.size())) * 1024;
  }
  return kNoLimit;
}

int64_t address_space_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kNoLimit));
}

}  // namespace

int64_t memory_limit(const fs::path& root) {
  return std::min({machine_memory(root), control_group_limit(root), address_space_limit()});
}

}  // namespace quire
