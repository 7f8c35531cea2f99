#pragma once
// lora_shrink for the kernel that multiplies t at once (product_cuda.cu).
#include "ops/cuda/lora_kernels.h"
#include "ops/cuda/lora_product_kernels.h"

namespace quire::ops::cuda {

// x A^T to tiles instead of args.t. The kernel tells the next one, once it has waited for those
// before, that their results are there (CudaLoraTiles::inputs_are_there). It has pairs, and always
// blocks.
void lora_shrink_to_tiles(CudaStream& stream, const CudaLoraShrink& args,
                          const CudaLoraTiles& tiles);

}  // namespace quire::ops::cuda
