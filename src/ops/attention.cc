#include "ops/attention.h"

#include <algorithm>
#include <vector>

#include "base/ceil_div.h"
#include "core/buffer.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/kv_layout.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/tasks.h"
#include "ops/cuda/kernels.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

void check_cache(const Stream& stream, ShapeCheck& shapes, const KvCacheView& cache) {
  shapes
      .require(
          !stream.is_cpu() || cache.dtype == DType::kFloat32 || cache.dtype == DType::kBFloat16,
          "the KV cache is float32 or bfloat16")
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

// Writes one token's key and value of one KV head into the cache.
template <typename T>
void store(const KvCacheView& cache, int64_t slot, int64_t head, const float* key,
           const float* value) {
  const int64_t block = slot / cache.block_size;
  const int64_t token = slot % cache.block_size;
  const int64_t base =
      block * static_cast<int64_t>(cache.block_bytes() / sizeof(T)) + kv_head_offset(cache, head);
  T* keys = static_cast<T*>(cache.keys) + base + key_offset(cache, token, 0);
  T* values = static_cast<T*>(cache.values) + base + value_offset(cache, token, 0);
  constexpr int64_t kValues = sizeof(T) == 2 ? 2 : 1;
  for (int64_t d = 0; d < cache.head_dim; d += kValues) {
    for (int64_t i = 0; i < kValues; ++i) keys[d * kKeyLanes + i] = T(key[d + i]);
  }
  for (int64_t d = 0; d < cache.head_dim; ++d) values[d * kValues] = T(value[d]);
}

// Attention of one sequence's query tile and one KV head, found from a task's number.
class AttentionTasks {
 public:
  AttentionTasks(const ForwardBatch& batch, int heads_per_kv_head, int num_kv_heads)
      : query_start_(batch.query_start.data<int32_t>()), num_kv_heads_(num_kv_heads) {
    tile_tokens_ = std::max(1, kAttentionTaskRows / heads_per_kv_head);
    first_tile_.reserve(static_cast<size_t>(batch.num_seqs) + 1);
    first_tile_.push_back(0);
    for (int64_t seq = 0; seq < batch.num_seqs; ++seq) {
      first_tile_.push_back(first_tile_.back() + ceil_div(length(seq), tile_tokens_));
    }
  }

  struct Item {
    int64_t seq;
    int64_t kv_head;
    int64_t first_token;  // within the sequence's queries
    int64_t num_tokens;
  };

  int64_t size() const { return first_tile_.back() * num_kv_heads_; }
  int tile_tokens() const { return tile_tokens_; }
  int64_t length(int64_t seq) const { return query_start_[seq + 1] - query_start_[seq]; }

  Item operator[](int64_t task) const {
    const int64_t tile = task / num_kv_heads_;
    const auto next = std::upper_bound(first_tile_.begin(), first_tile_.end(), tile);
    const int64_t seq = next - first_tile_.begin() - 1;
    // The last tile of a sequence sees the most keys: it goes first, so that no thread is left with
    // it.
    const int64_t first_token = (*next - 1 - tile) * tile_tokens_;
    return {.seq = seq,
            .kv_head = task % num_kv_heads_,
            .first_token = first_token,
            .num_tokens = std::min<int64_t>(tile_tokens_, length(seq) - first_token)};
  }

 private:
  const int32_t* query_start_;
  int num_kv_heads_;
  int tile_tokens_;
  std::vector<int64_t> first_tile_;  // of each sequence, and the number of tiles
};

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
        .cache = to_cuda(cache)};
    return stream.cuda_kernels().qk_norm_rope_cache(stream.cuda(), args);
  }
  const Kernels& kernels = kernels_for(stream.isa());
  const int64_t head_dim = cache.head_dim;
  const auto norm_of = [](const Tensor& norm) {
    return norm.defined() ? norm.data<float>() : nullptr;
  };

  for_each_row(stream, t.value, width.value, [&](int64_t token) {
    float* row = qkv.row<float>(token);
    const int64_t position = batch.positions.data<int32_t>()[token];
    check(position >= 0 && position < positions.value,
          "qk_norm_rope_cache: a position beyond cos_sin");
    for (int64_t head = 0; head < num_heads + cache.num_kv_heads; ++head) {
      kernels.norm_rope({.x = row + head * head_dim,
                         .head_dim = cache.head_dim,
                         .norm = norm_of(head < num_heads ? params.q_norm : params.k_norm),
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
      if (cache.dtype == DType::kBFloat16) {
        store<BFloat16>(cache, slot, head, key, value);
      } else {
        store<float>(cache, slot, head, key, value);
      }
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
        .scratch = batch.attention_scratch};
    return stream.cuda_kernels().paged_attention(stream.cuda(), args);
  }
  const Kernels& kernels = kernels_for(stream.isa());
  const int group = num_heads / cache.num_kv_heads;
  const AttentionTasks tasks(batch, group, cache.num_kv_heads);
  const size_t scratch_bytes =
      align_up(attention_scratch_bytes(tasks.tile_tokens() * group, cache.head_dim));
  std::byte* scratch = stream.scratch(scratch_bytes * static_cast<size_t>(stream.pool().size()));
  const auto attend =
      cache.dtype == DType::kBFloat16 ? kernels.attention_bf16 : kernels.attention_f32;

  stream.pool().parallel_for(tasks.size(), [&](int64_t number, int thread) {
    const AttentionTasks::Item item = tasks[number];
    const int64_t context = batch.context_lens.data<int32_t>()[item.seq];
    const int64_t row = batch.query_start.data<int32_t>()[item.seq] + item.first_token;
    const int64_t column = item.kv_head * group * cache.head_dim;
    const int64_t head_bytes =
        kv_head_offset(cache, item.kv_head) * static_cast<int64_t>(size_of(cache.dtype));
    check(context <= blocks.value * cache.block_size,
          "paged_attention: a context beyond its blocks");
    attend({.q = q.row<float>(row) + column,
            .q_stride = q.row_stride(),
            .out = out.row<float>(row) + column,
            .out_stride = out.row_stride(),
            .tokens = static_cast<int>(item.num_tokens),
            .heads = group,
            .first_position = context - tasks.length(item.seq) + item.first_token,
            .window = sliding_window,
            .scale = scale,
            .head_dim = cache.head_dim,
            .block_table = batch.block_tables.row<int32_t>(item.seq),
            .block_size = cache.block_size,
            .keys = static_cast<const std::byte*>(cache.keys) + head_bytes,
            .values = static_cast<const std::byte*>(cache.values) + head_bytes,
            .block_bytes = static_cast<int64_t>(cache.block_bytes()),
            .scratch = scratch + static_cast<size_t>(thread) * scratch_bytes});
  });
}

}  // namespace quire::ops
