#pragma once
// A sum over the ranks, the residual's sum and the norm that follows it, in one kernel: what a
// decoder layer does twice, each time with no more rows than the link carries in microseconds.
//
// dist/one_shot_cuda.h has the protocol and the requirements: these calls and its own take turns.
#include "dist/one_shot_cuda.h"

namespace quire {

// x = sum over ranks of x, rounded; residual += x, rounded; out = RMS norm of residual, times
// weight. [rows, n], contiguous; out may be x.
struct PeerAddNorm {
  DType dtype;  // float32, bfloat16 or float16
  const void* x;
  void* residual;
  const float* weight;  // [n]
  float eps;
  int64_t rows;
  int64_t n;
  void* out;
};

// False, and nothing is done, where the rows are more than one sum takes at a time (is_one_shot(),
// max_two_shot_bytes()), or a row is too long or no whole number of 16-byte pieces.
bool peer_all_reduce_add_norm(CudaStream& stream, const PeerView& peers, const PeerAddNorm& args);

void load_all_reduce_norm_kernels(int size);

}  // namespace quire
