#pragma once
// DeviceStream on CUDA. Thread safety: as DeviceStream says.
#include <memory>

#include "core/device_library.h"
#include "core/stream_cuda.h"

namespace quire {

std::unique_ptr<DeviceStream> make_cuda_device_stream(
    int index, std::shared_ptr<const ops::LinearAlgorithms> algorithms = nullptr);
std::unique_ptr<PinnedBuffer> allocate_cuda_pinned(size_t bytes);

}  // namespace quire
