#pragma once
// The ways to multiply that linear (ops/cuda/kernels.h) chooses from. Each queues on the stream and
// can be captured.
#include "ops/cuda/kernels.h"

namespace quire::ops::cuda {

// By cuBLAS, with the algorithm that the stream's table names for the shape (algorithms.h);
// where it names none, or one that this cuBLAS does not run, the first that cuBLAS's heuristics
// name. `bias` replaces that of the arguments: [n] of out_dtype, or null. Needs k to be a multiple
// of 8, and no silu_and_mul. Of a float8 weight, what is multiplied is the rounded activations in
// the arguments' scratch (float8.cuh). False: this cuBLAS has no kernel for the product, and
// nothing is queued; throws where the weight is dense.
bool cublas_linear(CudaStream& stream, const CudaLinear& args, const void* bias);

// For few rows (linear_skinny_cuda.cu): a kernel that streams the weights through the tensor cores
// and starts to fetch them while the kernel before it still runs. How it cuts a product follows
// only from the shape.
inline constexpr int kDepth = 64;         // of k, in a stage
inline constexpr int kGroupColumns = 64;  // outputs of a row that one warpgroup has
inline constexpr int kMaxStages = 16;
struct SkinnyPlan {
  int tile_rows;     // 8, 16, 32 or 64: rows of activations a block
  int tile_columns;  // kGroupColumns or, with 64 rows, twice that: rows of weights a block
  int splits;        // parts of k: 1, 2, 4 or 8
  int num_stages;    // in shared memory; kMaxStages at most
  // Tiles, 1 or 2, that read each other's weights, or activations, from memory but once. Together
  // with the splits, 8 at most.
  int cluster_rows;
  int cluster_columns;
};
bool skinny_linear_takes(CudaStream& stream, const CudaLinear& args);
SkinnyPlan skinny_plan(const CudaLinear& args);
void skinny_linear(CudaStream& stream, const CudaLinear& args, const SkinnyPlan& plan);

}  // namespace quire::ops::cuda
