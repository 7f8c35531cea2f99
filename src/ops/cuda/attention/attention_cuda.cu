#include "ops/cuda/attention/attention.cuh"

namespace quire::ops::cuda {

void paged_attention(CudaStream& stream, const CudaPagedAttention& args) {
  if (args.num_decode_seqs > 0) decode_attention(stream, args);
  if (args.num_decode_seqs < args.num_seqs) prefill_attention(stream, args);
}

}  // namespace quire::ops::cuda
