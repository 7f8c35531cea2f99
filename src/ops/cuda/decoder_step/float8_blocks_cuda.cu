#include "ops/cuda/decoder_step/kernel.cuh"

namespace quire::ops::cuda::step {

Kernel float8_blocks_kernel(const CudaDecoderStep& args) {
  return args.dtype == DType::kBFloat16 ? kernel_for_head<Float8Weights<__nv_bfloat16, true>>(args)
                                        : kernel_for_head<Float8Weights<__half, true>>(args);
}

}  // namespace quire::ops::cuda::step
