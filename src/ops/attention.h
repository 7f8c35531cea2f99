#pragma once
// Attention over the paged KV cache, and the op before it that fills the cache.
//
// Only these two ops know how a block's elements are ordered on this device. Activations (qkv, q,
// out) are float32 on the CPU. On a GPU they are of one dtype, which is also the cache's unless the
// cache is float8.
// Deterministic on the CPU, bit for bit: a token's result depends only on its own query and on the
// keys and values before it. It does not depend on how the prompt was chunked, what else is in the
// batch, which blocks hold the cache, or the threads. To this end KV is read in tiles of a fixed
// number of tokens from position 0 on, and the results of parts of a context, which begin at fixed
// positions, are merged in order. On a GPU the same batch gives the same bits, but how sums are
// cut, and so a token's last bits, may depend on the batch (ops/cuda/kernels.h).
#include "core/forward_batch.h"
#include "core/kv_cache_view.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace quire::ops {

// Norms and rotary embedding of the op below. Undefined norms are skipped.
struct QkNormRope {
  Tensor q_norm;  // float32[head_dim] or undefined
  Tensor k_norm;  // float32[head_dim] or undefined
  // On the CPU: for each token the weights in place of q_norm and k_norm, [head_dim]; empty: none.
  std::span<const float* const> q_norms_of_rows = {};
  std::span<const float* const> k_norms_of_rows = {};
  float eps = 1e-6f;
  // float32[max_position, rotary_dim]: cosines in columns [0, rotary_dim/2), sines in the rest,
  // both times the RoPE type's attention factor. Element i is rotated with element i + rotary_dim/2
  // (the "neox" order of Hugging Face); elements from rotary_dim on pass unchanged.
  Tensor cos_sin;
};

// Per head: norm q and k, rotate both by the token's position, write q back, and store k and v in
// the cache at the token's slot (none where slot_mapping is -1).
// qkv [T, (num_heads + 2 * num_kv_heads) * head_dim]: q heads, k heads, v heads.
// num_kv_heads and head_dim are the cache's.
void qk_norm_rope_cache(Stream& stream, const Tensor& qkv, int num_heads, const QkNormRope& params,
                        const ForwardBatch& batch, const KvCacheView& cache);

// Causal grouped-query attention: head h reads KV head h / (num_heads / num_kv_heads).
// q [T, num_heads * head_dim], rows may be strided; out [T, num_heads * head_dim].
// A query at position p sees keys at positions (p - sliding_window, p], or [0, p] if sliding_window
// is 0. scale multiplies q.k (1 / sqrt(head_dim) unless the model says otherwise).
void paged_attention(Stream& stream, const Tensor& q, int num_heads, float scale,
                     int64_t sliding_window, const ForwardBatch& batch, const KvCacheView& cache,
                     const Tensor& out);

}  // namespace quire::ops
