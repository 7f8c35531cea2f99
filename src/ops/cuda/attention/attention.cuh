#pragma once
// The two halves of paged_attention (ops/cuda/kernels.h): both take all of its arguments and do
// their own sequences.
#include "ops/cuda/kernels.h"

namespace quire::ops::cuda {

// Sequences [0, num_decode_seqs), one query each. Needs num_decode_seqs > 0.
void decode_attention(CudaStream& stream, const CudaPagedAttention& args);

// Sequences [num_decode_seqs, num_seqs), any number of queries each. Needs
// num_decode_seqs < num_seqs.
void prefill_attention(CudaStream& stream, const CudaPagedAttention& args);

}  // namespace quire::ops::cuda
