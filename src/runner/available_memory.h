#pragma once
// How much main memory an engine may take.
//
// Thread safety: a free function.
#include <cstdint>

namespace quire {

// Memory that can be taken without swapping: the system's estimate, or what a container's limit
// leaves where that is lower. Bytes.
int64_t available_memory();

}  // namespace quire
