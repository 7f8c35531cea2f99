#pragma once
// The ways to multiply that linear (cuda_kernels.h) chooses from. Each queues on the stream and can
// be captured.
#include "ops/cuda_kernels.h"

namespace quire::ops::cuda {

// By cuBLAS, with the first algorithm that its heuristics name for the shape. `bias` replaces that
// of the arguments: [n] of out_dtype, or null. Needs k to be a multiple of 8, and no silu_and_mul.
void cublas_linear(CudaStream& stream, const CudaLinear& args, const void* bias);

}  // namespace quire::ops::cuda
