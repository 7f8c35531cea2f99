#include "ops/cuda/decoder_step/kernel.cuh"

namespace quire::ops::cuda::step {

Kernel dense_kernel(const CudaDecoderStep& args, bool ahead) {
  return args.dtype == DType::kBFloat16 ? kernel_of<DenseWeights<__nv_bfloat16>>(args, ahead)
                                        : kernel_of<DenseWeights<__half>>(args, ahead);
}

}  // namespace quire::ops::cuda::step
