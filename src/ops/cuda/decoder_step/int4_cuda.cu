#include "ops/cuda/decoder_step/kernel.cuh"

namespace quire::ops::cuda::step {

Kernel int4_kernel(const CudaDecoderStep& args) {
  return args.dtype == DType::kBFloat16
             ? kernel_for_head<IntegerWeights<__nv_bfloat16, true, false>>(args)
             : kernel_for_head<IntegerWeights<__half, true, false>>(args);
}

}  // namespace quire::ops::cuda::step
