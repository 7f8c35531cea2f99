#include "ops/attention.h"

#include "ops/cpu/dispatch.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/kv_store.h"
#include "ops/cpu/paged_attention.h"
#include "ops/cpu/tasks.h"
#include "ops/cuda/kernels.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

void check_cache(const Stream& stream, ShapeCheck& shapes, const KvCacheView& cache) {
  const bool is_narrow = size_of(cache.dtype) == 1;
  shapes
      .require(!stream.is_cpu() || cache.dtype == DType::kFloat32 ||
                   cache.dtype == DType::kBFloat16 || is_float8(cache.dtype) ||
                   cache.dtype == DType::kInt8,
               "the KV cache is float32, bfloat16, float8 or int8")
      .require(!stream.is_cpu() || !is_narrow || takes_narrow_cache(cache.head_dim),
               "for elements of a byte head_dim is a multiple of 8 up to 1024")
      .require(stream.is_cpu() || cache.dtype != DType::kInt8, "a GPU's KV cache is not int8")
      .require(is_float8(cache.dtype) || (!cache.key_scales && !cache.value_scales),
               "only a KV cache of float8 has a scale for each head")
      .require(stream.is_cpu() || cache.head_dim % 8 == 0, "on a GPU head_dim is a multiple of 8")
      .require(cache.block_size > 0 && cache.block_size % kKeyLanes == 0 && cache.block_size <= 256,
               "the block size is a multiple of 16 up to 256")
      .require(cache.head_dim > 0 && cache.head_dim % 2 == 0, "head_dim is even")
      .require(cache.num_kv_heads > 0, "the cache has KV heads");
}

CudaKvCache to_cuda(const KvCacheView& cache) {
  return {.dtype = cache.dtype,
          .keys = cache.keys,
          .values = cache.values,
          .block_size = cache.block_size,
          .num_kv_heads = cache.num_kv_heads,
          .head_dim = cache.head_dim};
}

CudaKvScales scales_of(const KvCacheView& cache) {
  return {.keys = cache.key_scales, .values = cache.value_scales};
}

}  // namespace

void qk_norm_rope_cache(Stream& stream, const Tensor& qkv, int num_heads, const QkNormRope& params,
                        const ForwardBatch& batch, const KvCacheView& cache) {
  Dim t{"T", batch.num_tokens}, d{"head_dim", cache.head_dim};
  Dim width{"qkv", (num_heads + 2 * int64_t{cache.num_kv_heads}) * cache.head_dim};
  Dim positions{"max_position"}, rotary{"rotary_dim"};
  ShapeCheck shapes("qk_norm_rope_cache");
  check_cache(stream, shapes, cache);
  const DType dtype = activation_dtype(stream, qkv);
  shapes.expect("qkv", qkv, dtype, {&t, &width})
      .expect("positions", batch.positions, DType::kInt32, {&t})
      .expect("slot_mapping", batch.slot_mapping, DType::kInt64, {&t})
      .expect_optional("q_norm", params.q_norm, DType::kFloat32, {&d})
      .expect_optional("k_norm", params.k_norm, DType::kFloat32, {&d})
      .expect("cos_sin", params.cos_sin, DType::kFloat32, {&positions, &rotary})
      .require(rotary.value % 2 == 0 && rotary.value <= cache.head_dim,
               "rotary_dim is even and at most head_dim");
  for (const auto norms : {params.q_norms_of_rows, params.k_norms_of_rows}) {
    shapes.require(norms.empty() || (stream.is_cpu() && std::ssize(norms) == t.value),
                   "norms of rows are the CPU's, one for each token");
  }
  if (!stream.computes()) return;
  if (!stream.is_cpu()) {
    const CudaQkNormRopeCache args = {
        .dtype = dtype,
        .qkv = qkv.raw(),
        .num_heads = num_heads,
        .q_norm = params.q_norm.defined() ? params.q_norm.data<float>() : nullptr,
        .k_norm = params.k_norm.defined() ? params.k_norm.data<float>() : nullptr,
        .eps = params.eps,
        .cos_sin = params.cos_sin.data<float>(),
        .rotary_dim = static_cast<int>(rotary.value),
        .num_tokens = t.value,
        .positions = batch.positions.data<int32_t>(),
        .slot_mapping = batch.slot_mapping.data<int64_t>(),
        .cache = to_cuda(cache),
        .scales = scales_of(cache)};
    return stream.cuda_kernels().qk_norm_rope_cache(stream.cuda(), args);
  }
  const Kernels& kernels = kernels_for(stream.isa());
  const int64_t head_dim = cache.head_dim;
  const auto norm_of = [](const Tensor& norm, std::span<const float* const> of_rows,
                          int64_t token) -> const float* {
    if (!of_rows.empty()) return of_rows[static_cast<size_t>(token)];
    return norm.defined() ? norm.data<float>() : nullptr;
  };

  for_each_row(stream, t.value, width.value, [&](int64_t token) {
    float* row = qkv.row<float>(token);
    const int64_t position = batch.positions.data<int32_t>()[token];
    check(position >= 0 && position < positions.value,
          "qk_norm_rope_cache: a position beyond cos_sin");
    const float* const q_norm = norm_of(params.q_norm, params.q_norms_of_rows, token);
    const float* const k_norm = norm_of(params.k_norm, params.k_norms_of_rows, token);
    for (int64_t head = 0; head < num_heads + cache.num_kv_heads; ++head) {
      kernels.norm_rope({.x = row + head * head_dim,
                         .head_dim = cache.head_dim,
                         .norm = head < num_heads ? q_norm : k_norm,
                         .eps = params.eps,
                         .cos_sin = params.cos_sin.row<float>(position),
                         .rotary_dim = static_cast<int>(rotary.value)});
    }
    const int64_t slot = batch.slot_mapping.data<int64_t>()[token];
    if (slot < 0) return;
    check(slot < cache.num_blocks * cache.block_size,
          "qk_norm_rope_cache: a slot beyond the cache");
    for (int64_t head = 0; head < cache.num_kv_heads; ++head) {
      const float* key = row + (num_heads + head) * head_dim;
      const float* value = key + cache.num_kv_heads * head_dim;
      store_key_value(kernels, cache, slot, head, key, value);
    }
  });
}

void paged_attention(Stream& stream, const Tensor& q, int num_heads, float scale,
                     int64_t sliding_window, const ForwardBatch& batch, const KvCacheView& cache,
                     const Tensor& out) {
  Dim t{"T", batch.num_tokens}, width{"q", int64_t{num_heads} * cache.head_dim};
  Dim seqs{"num_seqs", batch.num_seqs}, starts{"num_seqs+1", batch.num_seqs + 1}, blocks{"blocks"};
  ShapeCheck shapes("paged_attention");
  check_cache(stream, shapes, cache);
  const DType dtype = activation_dtype(stream, q);
  shapes.expect("q", q, dtype, {&t, &width})
      .expect("out", out, dtype, {&t, &width})
      .expect("query_start", batch.query_start, DType::kInt32, {&starts})
      .expect("context_lens", batch.context_lens, DType::kInt32, {&seqs})
      .expect("block_tables", batch.block_tables, DType::kInt32, {&seqs, &blocks})
      .require(num_heads % cache.num_kv_heads == 0, "KV heads divide the heads")
      .require(sliding_window >= 0, "the sliding window is not negative");
  if (!stream.computes()) return;
  if (!stream.is_cpu()) {
    const CudaPagedAttention args = {
        .dtype = dtype,
        .q = q.raw(),
        .q_stride = q.row_stride(),
        .out = out.raw(),
        .num_heads = num_heads,
        .scale = scale,
        .sliding_window = sliding_window,
        .num_tokens = t.value,
        .num_seqs = seqs.value,
        .max_query_len = batch.max_query_len,
        .max_context_len = batch.max_context_len,
        .query_start = batch.query_start.data<int32_t>(),
        .context_lens = batch.context_lens.data<int32_t>(),
        .block_tables = batch.block_tables.data<int32_t>(),
        .table_width = blocks.value,
        .num_decode_seqs = batch.num_decode_seqs,
        .decode_items = reinterpret_cast<const DecodeItem*>(batch.decode_items.data<int32_t>()),
        .num_decode_items = batch.num_decode_items.data<int32_t>(),
        .max_decode_items = batch.decode_items.dim(0),
        .cache = to_cuda(cache),
        .scratch = batch.attention_scratch,
        .max_decode_rows = batch.num_decode_rows,
        .max_decode_queries = batch.max_decode_queries,
        .scales = scales_of(cache)};
    return stream.cuda_kernels().paged_attention(stream.cuda(), args);
  }
  const int64_t most_tokens = blocks.value * cache.block_size;
  for (int64_t seq = 0; seq < seqs.value; ++seq) {
    check(batch.context_lens.data<int32_t>()[seq] <= most_tokens,
          "paged_attention: a context beyond its blocks");
  }
  paged_attention_on_cpu(stream, q, num_heads, scale, sliding_window, batch, cache, out);
}

}  // namespace quire::ops
