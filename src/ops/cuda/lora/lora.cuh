#pragma once
// What the files of adapters' kernels offer each other.
#include "core/stream_cuda.h"
#include "ops/cuda/lora_kernels.h"

namespace quire::ops::cuda {

// lora_expand with `x`: t is made on the way.
void lora_in_one(CudaStream& stream, const CudaLoraExpand& args);

}  // namespace quire::ops::cuda
