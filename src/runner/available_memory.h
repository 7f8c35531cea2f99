#pragma once
// How much main memory an engine may take.
//
// Thread safety: a free function.
#include <cstdint>

namespace quire {

// Memory that can be taken without swapping: the system's estimate, or what the limits of control
// groups and of the address space leave where that is lower (memory_left()). Bytes. Throws Error
// where nothing says how much there is.
int64_t available_memory();

}  // namespace quire
