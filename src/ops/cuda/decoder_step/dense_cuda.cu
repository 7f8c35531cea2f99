#include "ops/cuda/decoder_step/kernel.cuh"

namespace quire::ops::cuda::step {

Kernel dense_kernel(const CudaDecoderStep& args) {
  return args.dtype == DType::kBFloat16 ? kernel_for_head<DenseWeights<__nv_bfloat16>>(args)
                                        : kernel_for_head<DenseWeights<__half>>(args);
}

}  // namespace quire::ops::cuda::step
