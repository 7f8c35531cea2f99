#include "ops/attention_cuda.cuh"
#include "ops/attention_prefill.cuh"

namespace quire::ops::cuda {

void prefill_attention(CudaStream& stream, const CudaPagedAttention& args) {
  if (hopper_attention(stream, args)) return;
  if (flash_attention(stream, args)) return;
  plain_attention(stream, args);
}

}  // namespace quire::ops::cuda
