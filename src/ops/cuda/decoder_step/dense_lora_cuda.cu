#include "ops/cuda/decoder_step/adapters.cuh"
#include "ops/cuda/decoder_step/kernel.cuh"

namespace quire::ops::cuda::step {

Kernel dense_lora_kernel(const CudaDecoderStep& args) {
  return kernel_for_head<DenseWeights<__nv_bfloat16>, MatrixAdapters>(args);
}

}  // namespace quire::ops::cuda::step
