#include "ops/cuda/decoder_step/kernel.cuh"

namespace quire::ops::cuda::step {

Kernel int8_shifts_kernel(const CudaDecoderStep& args) {
  return args.dtype == DType::kBFloat16
             ? kernel_for_head<IntegerWeights<__nv_bfloat16, false, true>>(args)
             : kernel_for_head<IntegerWeights<__half, false, true>>(args);
}

}  // namespace quire::ops::cuda::step
