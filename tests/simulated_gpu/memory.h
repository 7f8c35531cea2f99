#pragma once
// Memory of a simulated GPU, and the host's that it copies from and to.
#include <cstddef>
#include <memory>

#include "core/device_library.h"
#include "simulated_gpu/gpu.h"

namespace quire::simulated {

std::unique_ptr<DeviceMemory> reserve(Gpu& gpu, size_t bytes);
std::unique_ptr<PinnedBuffer> allocate_pinned(Gpus& gpus, size_t bytes);

}  // namespace quire::simulated
