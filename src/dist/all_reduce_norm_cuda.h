#pragma once
// In one kernel: a sum over the ranks, the residual's sum and the norm after it. A decoder layer
// does this twice; it is for so few rows that the link carries them in microseconds.
//
// dist/one_shot_cuda.h has the protocol and the requirements: these calls count among its own.
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

// Returns false and does nothing where the rows are more than one sum takes at a time
// (is_one_shot(), max_two_shot_bytes()), or a row is too long or not a whole number of 16-byte
// pieces.
bool peer_all_reduce_add_norm(CudaStream& stream, const PeerView& peers, const PeerAddNorm& args);

void load_all_reduce_norm_kernels(int size);

}  // namespace quire
