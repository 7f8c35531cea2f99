#pragma once
// Adds to a layer's outputs what the adapters in a GPU's slots contribute
// (ops/cuda/lora_kernels.h). On a GPU.
//
// Deterministic: the same step repeats bit for bit.
#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"
#include "ops/cuda/lora_kernels.h"
#include "ops/cuda/lora_product_kernels.h"
#include "ops/weight.h"

namespace quire::ops {

// A layer's matrices, in all slots.
struct LoraSlotLayer {
  const CudaLoraLayer* slots = nullptr;  // on the GPU; `stride` from one to the next
  int64_t stride = 0;
  DType dtype = DType::kFloat32;
  bool is_embedding = false;  // looked up, not multiplied
  int64_t k = 0;              // inputs; of an embedding the vocabulary
  int64_t max_ranks = 0;
  int num_parts = 0;
  int64_t first_output[kMaxLoraParts] = {};
  int64_t num_outputs[kMaxLoraParts] = {};
  CudaLoraTiles tiles = {};  // for lora_linear
};

// A norm's weights, in all slots.
struct LoraSlotNorm {
  const float* const* slots = nullptr;  // on the GPU; `stride` from one to the next
  int64_t stride = 0;
};

// Number of floats in t for `rows` rows.
int64_t lora_sums(const LoraSlotLayer& layer, int64_t rows);

// t = x A^T, in a form of its own. x [rows.num_rows, k], t float32[lora_sums()]. In a graph's
// capture, what comes next need not wait for few rows: only the lora_expand that follows does,
// which has to be given the same branch.
void lora_shrink(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                 const Tensor& x, const Tensor& t, LoraBranch& branch);
// t = the columns of A of token_ids int32[rows.num_rows]: of an embedding, for lora_expand.
void lora_look_up(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                  const Tensor& token_ids, const Tensor& t);
// out += scale * t B^T, and what factors and biases change. bias float32[N] is the base's that is
// in `out`, or undefined. out [rows.num_rows, N] of the layer's dtype or float32, its rows may be
// strided.
void lora_expand(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                 const Tensor& t, const Tensor& bias, const Tensor& out, LoraBranch& branch);
// Adds the adapters to gate_up [rows.num_rows, 2I] likewise, then out = silu(gate) * up, for all
// rows of the items. The layer's parts are gate and up. bias float32[2I] or undefined; out
// [rows.num_rows, I].
void lora_expand_gated(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                       const Tensor& t, const Tensor& bias, const Tensor& gate_up,
                       const Tensor& out, LoraBranch& branch);

// Clears a step's room for lora_linear, uint8[bytes], before its first layer.
void lora_begin(Stream& stream, const Tensor& room);
// linear, or with `gated` gated_linear, with what adapters without factors and added biases add to
// the product: instead of the three ops above and the base's, in other bits. x [rows.num_rows, k],
// all of the step's rows. False: the GPU has no kernel for it, and nothing is queued.
bool lora_linear(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                 const Tensor& x, const Weight& weight, const Tensor& bias, bool gated,
                 const Tensor& out);

// Computes the rows of `out` whose slots have a weight of their own again, from x: out = norm(x).
// x, out [rows.num_rows, N], which do not overlap.
void lora_norm(Stream& stream, const CudaLoraRows& rows, const LoraSlotNorm& norm, float eps,
               const Tensor& x, const Tensor& out);

}  // namespace quire::ops
