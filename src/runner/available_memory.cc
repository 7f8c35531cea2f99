#include "runner/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "quire/error.h"

namespace quire {
namespace {

// What a container's limit (cgroup v2) leaves; nothing where there is none. File pages that were
// not used lately are given up when memory is needed, so they count as free.
std::optional<int64_t> left_in_container() {
  int64_t limit = 0;
  int64_t used = 0;
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");  // a number, or "max"
  std::ifstream used_file("/sys/fs/cgroup/memory.current");
  if (!(limit_file >> limit) || !(used_file >> used)) return std::nullopt;
  std::ifstream stat("/sys/fs/cgroup/memory.stat");
  std::string key;
  int64_t value = 0;
  while (stat >> key >> value) {
    if (key == "inactive_file") used -= value;
  }
  return std::max<int64_t>(0, limit - used);
}

}  // namespace

int64_t available_memory() {
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  int64_t available = kUnknown;
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t value = 0;
  std::string unit;
  while (meminfo >> key >> value) {
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") available = value * 1024;
  }
  if (const std::optional<int64_t> left = left_in_container()) {
    available = std::min(available, *left);
  }
  if (available == kUnknown) {
    throw Error(
        "/proc/meminfo has no line MemAvailable, so free memory is not known; set "
        "--num-gpu-blocks-override and mount /proc.");
  }
  return available;
}

}  // namespace quire
