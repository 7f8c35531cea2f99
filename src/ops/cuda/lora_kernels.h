#pragma once
// What the kernels of adapters take: ops/cuda/kernels.h says what holds for all kernels.
//
// An adapter lies in one of a number of slots. Of each layer it adds to, a slot has matrices A and
// B, and of a layer that is several modules of a checkpoint (q, k and v) their As below each other
// and a B for each part of the outputs:
//
//   t = x A^T                                          lora_shrink
//   out[part] += scale[part] * t[part's ranks] B^T     lora_expand
//
// DoRA's factors then scale all of a part but the base's bias, and biases are added:
//
//   out[part] = factor[part] * (out[part] - bias) + bias + added[part]
//
// Of an embedding x is a token, and x A^T a column of A (lora_look_up). Norms may have weights of
// their own in a slot (lora_norm).
//
// Rows of a step that have the same slot are gathered into items, so that a matrix is read once for
// up to kLoraItemRows rows. What is where is read on the device, so that one graph serves any mix
// of adapters. Sums are float32.
#include <cstdint>

#include "core/dtype.h"

namespace quire::ops {

inline constexpr int kLoraItemRows = 32;
inline constexpr int kMaxLoraParts = 3;
// Ranks of a part are padded to a multiple of this, with zeros in A and B.
inline constexpr int kLoraRankStep = 16;

// Some rows with the same slot.
struct alignas(16) LoraItem {
  int32_t slot;   // -1: the rows have no adapter
  int32_t first;  // in CudaLoraRows::rows
  int32_t count;  // 1 to kLoraItemRows
  int32_t unused;
};

struct CudaLoraRows {
  const LoraItem* items;     // [max_items]: all may be read
  const int32_t* num_items;  // [1]: of them that count
  int64_t max_items;
  const int32_t* rows;  // rows of the step, item after item
  // The matrices' rows are the step's [first_row, first_row + num_rows); items may have others,
  // too, which are passed over.
  int64_t first_row;
  int64_t num_rows;
};

// What a slot adds to a layer. Lives in device memory. Matrices are of the activations' dtype,
// their rows contiguous.
struct alignas(16) CudaLoraLayer {
  const void* a;                 // [ranks, k]
  const void* b[kMaxLoraParts];  // [outputs of the part, rank of the part]
  int32_t ranks;                 // a multiple of kLoraRankStep; 0: no matrices
  int32_t first_rank[kMaxLoraParts];
  int32_t rank[kMaxLoraParts];  // a multiple of kLoraRankStep; 0: no matrices
  float scale[kMaxLoraParts];
  const float* factor[kMaxLoraParts];  // [outputs of the part], or null: 1
  const float* added[kMaxLoraParts];   // the same, or null: 0
};

// Sums over k may be cut into parts: few rows are too little work for a GPU otherwise. lora_expand
// adds the parts up in order; with pairs lora_shrink does.
inline constexpr int kMaxLoraSplits = 8;
inline constexpr int64_t kMostLoraSplitRows = 512;
inline constexpr int lora_splits(int64_t rows, int64_t k) {
  if (rows > kMostLoraSplitRows || k < 2048) return 1;
  const int64_t splits = k / 1024;
  return splits < kMaxLoraSplits ? static_cast<int>(splits) : kMaxLoraSplits;
}

// Whether both kernels can use tensor cores, which is what `pairs` asks for: of types of 16 bits,
// where first_output and num_outputs of each part are multiples of 8, too. They then hand on each
// sum as two numbers of the type, the sum rounded to it and what that leaves.
inline constexpr bool takes_lora_pairs(DType dtype, int64_t k) {
  return (dtype == DType::kBFloat16 || dtype == DType::kFloat16) && k % 8 == 0;
}

// The kernel of a lora_shrink that was captured for a CUDA graph as a branch beside what comes next
// in the stream, until the lora_expand that waits for it. Lives on the host.
struct LoraBranch {
  void* kernel = nullptr;
};

// t[split][row] = x[row] A^T over the split's part of k, for rows with a slot that has matrices;
// the others stay as they are.
struct CudaLoraShrink {
  DType dtype;
  CudaLoraRows rows;
  const CudaLoraLayer* layers;  // [slots], each `layer_stride` from the one before
  int64_t layer_stride;
  const void* x;  // [num_rows, k], rows `x_stride` elements apart
  int64_t x_stride;
  int64_t k;
  int64_t max_ranks;  // a slot's ranks are at most these: a multiple of kLoraRankStep
  int splits;
  bool pairs;
  void* t;  // float32 [splits, num_rows, max_ranks]; with pairs dtype [num_rows, 2, max_ranks]
  // Null: what comes next in the stream waits. Else only lora_expand with the same branch does, if
  // this is captured, and there has to be one.
  LoraBranch* branch = nullptr;
};

// t[row] = A's column of the row's token, for rows with a slot that has matrices: of an embedding,
// whose outputs are one part. lora_expand takes t as one split.
struct CudaLoraLookUp {
  DType dtype;
  CudaLoraRows rows;
  const CudaLoraLayer* layers;
  int64_t layer_stride;
  const int32_t* ids;  // [num_rows], in [0, k)
  int64_t k;           // tokens of the vocabulary
  int64_t max_ranks;
  bool pairs;
  void* t;  // CudaLoraShrink's
};

// out[row][outputs of each part] += scale * (sum of t's splits) B^T, for rows with a slot, and then
// what factors and biases change. With silu_and_mul there are two parts of the same width, gate and
// up, which stay as they are, and for all rows of the items
//
//   out[row] = silu(gate_up[row][first] so changed) * (gate_up[row][second] so changed)
struct CudaLoraExpand {
  DType dtype;
  DType out_dtype;  // dtype, or without silu_and_mul float32 (logits)
  CudaLoraRows rows;
  const CudaLoraLayer* layers;
  int64_t layer_stride;
  const void* t;  // CudaLoraShrink's
  int64_t max_ranks;
  int splits;
  bool pairs;
  int num_parts;
  int64_t first_output[kMaxLoraParts];
  int64_t num_outputs[kMaxLoraParts];
  bool silu_and_mul;
  const void* gate_up;  // [num_rows, 2 * width]; null without silu_and_mul
  int64_t gate_up_stride;
  const float* bias;  // the base's, which is in the outputs: one for each; null: none
  void* out;
  int64_t out_stride;
  LoraBranch* branch = nullptr;  // the shrink's
};

// out[row] = the RMS norm of x[row], times the slot's weight, for rows with a slot that has one;
// the others stay as they are. x and out are [num_rows, n], contiguous.
struct CudaLoraNorm {
  DType dtype;
  CudaLoraRows rows;
  const float* const* weights;  // [slots], each `weight_stride` from the one before: [n], or null
  int64_t weight_stride;
  const void* x;
  float eps;
  int64_t n;
  void* out;
};

}  // namespace quire::ops
