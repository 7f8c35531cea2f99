#include "runner/available_memory.h"

#include <limits>

#include "base/memory_limit.h"
#include "quire/error.h"

namespace quire {

int64_t available_memory() {
  const int64_t available = memory_left();
  if (available == std::numeric_limits<int64_t>::max()) {
    throw Error(
        "/proc/meminfo has no line MemAvailable, so free memory is not known; set "
        "--num-gpu-blocks-override and mount /proc.");
  }
  return available;
}

}  // namespace quire
