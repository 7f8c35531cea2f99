#pragma once
// Products of float8 weights: activations are rounded to float8 first, into the arguments' scratch,
// where the op before has not done that.
//
// Thread safety: as the stream's.
#include <cstdint>

#include "ops/cuda/linear/linear.cuh"

namespace quire::ops::cuda {

inline bool has_blocks(const CudaLinear& args) {
  return args.weight.format.group_size != 0;
}

// The arguments' rounded_in, or where in their scratch it goes. cuBLAS takes scales without gaps;
// float8_linear wants whole tiles.
Float8Activations float8_activations(const CudaLinear& args, bool for_cublas);

// in [rows, k], rows `in_stride` elements apart, to `out` (float8_rounding.cuh says how).
struct RowsToRound {
  DType dtype;  // bfloat16 or float16
  const void* in;
  int64_t in_stride;
  int64_t rows;
  int64_t k;
  Float8Activations out;
};
void round_to_float8(CudaStream& stream, const RowsToRound& args);
// args.in to `activations`; nothing where they are rounded already.
void round_activations(CudaStream& stream, const CudaLinear& args,
                       const Float8Activations& activations);

// out = activations * weight^T + bias, with silu_and_mul too, in a kernel of quire's that takes any
// number of rows and is meant for few. How it cuts a product follows only from the shape.
inline constexpr int kMostInStages = 4;  // of activations: no more than of weights
struct Float8Plan {
  int tile_rows;     // 8, 16, 32 or 64: rows of activations a block
  int tile_columns;  // 64 or, with 64 rows, 128: rows of weights a block
  int splits;        // parts of k: 1, 2, 4 or 8
  int num_stages;    // of weights in shared memory; kMaxStages at most
};
Float8Plan float8_plan(const CudaLinear& args);
void float8_linear(CudaStream& stream, const CudaLinear& args, const Float8Activations& activations,
                   const Float8Plan& plan);

// Whether cuBLAS is to multiply, rather than float8_linear.
bool float8_by_cublas(const CudaLinear& args);

}  // namespace quire::ops::cuda
