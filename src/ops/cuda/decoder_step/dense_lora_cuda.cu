#include "ops/cuda/decoder_step/adapters.cuh"
#include "ops/cuda/decoder_step/kernel.cuh"

namespace quire::ops::cuda::step {

Kernel dense_lora_kernel(const CudaDecoderStep& args, bool ahead) {
  return kernel_of<DenseWeights<__nv_bfloat16>, MatrixAdapters>(args, ahead);
}

}  // namespace quire::ops::cuda::step
