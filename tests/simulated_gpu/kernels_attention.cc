// The paged KV cache: what fills it, and what reads it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "simulated_gpu/elements.h"
#include "simulated_gpu/kernels.h"
#include "simulated_gpu/products.h"

namespace quire::simulated {
namespace {

// Elements from the start of the keys, or the values, to those of a slot and head.
int64_t offset_in_cache(const ops::CudaKvCache& cache, int64_t slot, int64_t head) {
  const int64_t block = slot / cache.block_size;
  const int64_t token = slot % cache.block_size;
  return ((block * cache.num_kv_heads + head) * cache.block_size + token) * cache.head_dim;
}

float scale_of(const float* scales, int64_t kv_head) {
  return scales == nullptr ? 1.0f : scales[kv_head];
}

void norm_and_rotate(const ops::CudaQkNormRopeCache& args, const float* norm, int32_t position,
                     std::vector<float>& x) {
  if (norm != nullptr) {
    float sum = 0;
    for (const float value : x) sum += value * value;
    const float factor = 1.0f / std::sqrt(sum / static_cast<float>(x.size()) + args.eps);
    for (size_t d = 0; d < x.size(); ++d) x[d] *= factor * norm[d];
  }
  const auto half = static_cast<size_t>(args.rotary_dim / 2);
  const float* cosines = args.cos_sin + int64_t{position} * args.rotary_dim;
  const float* sines = cosines + half;
  for (size_t d = 0; d < half; ++d) {
    const float low = x[d];
    const float high = x[d + half];
    x[d] = low * cosines[d] - high * sines[d];
    x[d + half] = high * cosines[d] + low * sines[d];
  }
}

// The keys and values of one KV head at some positions of a sequence, read once for all queries.
class KvHead {
 public:
  // `positions` in ascending order.
  KvHead(const ops::CudaPagedAttention& args, int64_t seq, int64_t kv_head,
         std::span<const int64_t> positions)
      : args_(args),
        table_(args.block_tables + seq * args.table_width),
        kv_head_(kv_head),
        positions_(positions),
        keys_(positions.size() * head_dim()),
        values_(keys_.size()) {
    std::vector<float> key(head_dim());
    for (size_t i = 0; i < positions.size(); ++i) {
      read_element(args.cache.keys, positions[i], key);
      for (size_t d = 0; d < key.size(); ++d) keys_[d * positions.size() + i] = key[d];
      read_element(args.cache.values, positions[i],
                   std::span(values_).subspan(i * head_dim(), head_dim()));
    }
  }

  // The attention of `q` at `position`, which sees the positions that are not after it nor before
  // its window.
  std::vector<float> attend(const std::vector<float>& q, int64_t position) const {
    const int64_t after_window = args_.sliding_window > 0 ? position - args_.sliding_window : -1;
    const auto begin = std::ranges::upper_bound(positions_, after_window);
    const auto end = std::ranges::upper_bound(positions_, position);
    // NaN where nothing is seen: no kernel may read it.
    std::vector<float> out(q.size(), std::numeric_limits<float>::quiet_NaN());
    if (begin >= end) return out;
    const auto first = static_cast<size_t>(begin - positions_.begin());
    std::vector<float> scores(static_cast<size_t>(end - begin));
    for (size_t d = 0; d < q.size(); ++d) {
      add_scaled(q[d], &keys_[d * positions_.size() + first], std::ssize(scores), scores.data());
    }
    const float scale = args_.scale * scale_of(args_.scales.keys, kv_head_);
    for (float& score : scores) score *= scale;
    const float max = *std::max_element(scores.begin(), scores.end());
    float sum = 0;
    std::fill(out.begin(), out.end(), 0.0f);
    for (size_t i = 0; i < scores.size(); ++i) {
      const float weight = std::exp(scores[i] - max);
      add_scaled(weight, &values_[(first + i) * out.size()], std::ssize(out), out.data());
      sum += weight;
    }
    const float value_scale = scale_of(args_.scales.values, kv_head_);
    for (float& value : out) value = value / sum * value_scale;
    return out;
  }

 private:
  size_t head_dim() const { return static_cast<size_t>(args_.cache.head_dim); }

  void read_element(const void* of, int64_t position, std::span<float> element) const {
    const ops::CudaKvCache& cache = args_.cache;
    const int64_t slot = int64_t{table_[position / cache.block_size]} * cache.block_size +
                         position % cache.block_size;
    read(cache.dtype, of, offset_in_cache(cache, slot, kv_head_), element);
  }

  const ops::CudaPagedAttention& args_;
  const int32_t* table_;
  int64_t kv_head_;
  std::span<const int64_t> positions_;
  std::vector<float> keys_;    // [head_dim, positions]
  std::vector<float> values_;  // [positions, head_dim]
};

// The positions of a decode sequence that its chunks cover, in order.
std::vector<int64_t> positions_of_chunks(const ops::CudaPagedAttention& args, int64_t seq) {
  std::vector<int64_t> positions;
  for (int64_t item = 0; item < *args.num_decode_items; ++item) {
    const ops::DecodeItem& chunk = args.decode_items[item];
    if (chunk.seq != seq) continue;
    const int64_t first = int64_t{chunk.chunk} * ops::kDecodeChunk;
    const int64_t last = std::min<int64_t>(first + ops::kDecodeChunk, chunk.context_len);
    for (int64_t position = first; position < last; ++position) positions.push_back(position);
  }
  std::ranges::sort(positions);
  return positions;
}

// Rows [begin, end) are the last of their sequence's first `context` tokens; `positions` are in
// ascending order.
void attend_rows(const ops::CudaPagedAttention& args, int64_t seq, int64_t begin, int64_t end,
                 int64_t context, std::span<const int64_t> positions) {
  // What no row sees may be another sequence's by now.
  const int64_t first = context - (end - begin);
  const int64_t after_window = args.sliding_window > 0 ? first - args.sliding_window : -1;
  const auto seen = positions.subspan(
      static_cast<size_t>(std::ranges::upper_bound(positions, after_window) - positions.begin()));
  const int64_t head_dim = args.cache.head_dim;
  const int64_t heads_per_kv_head = args.num_heads / args.cache.num_kv_heads;
  for (int64_t kv_head = 0; kv_head < args.cache.num_kv_heads; ++kv_head) {
    const KvHead kv(args, seq, kv_head, seen);
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < heads_per_kv_head; ++i) {
        const int64_t head = kv_head * heads_per_kv_head + i;
        const auto q = read(args.dtype, args.q, row * args.q_stride + head * head_dim, head_dim);
        write(args.dtype, args.out, (row * args.num_heads + head) * head_dim,
              kv.attend(q, context - (end - row)));
      }
    }
  }
}

}  // namespace

void qk_norm_rope_cache(const ops::CudaQkNormRopeCache& args) {
  const ops::CudaKvCache& cache = args.cache;
  const int64_t head_dim = cache.head_dim;
  const int64_t num_heads = args.num_heads + 2 * cache.num_kv_heads;
  for (int64_t token = 0; token < args.num_tokens; ++token) {
    for (int64_t head = 0; head < num_heads; ++head) {
      const int64_t at = (token * num_heads + head) * head_dim;
      std::vector<float> x = read(args.dtype, args.qkv, at, head_dim);
      if (head < args.num_heads) {
        norm_and_rotate(args, args.q_norm, args.positions[token], x);
        write(args.dtype, args.qkv, at, x);
        continue;
      }
      const int64_t kv_head = (head - args.num_heads) % cache.num_kv_heads;
      const bool is_key = head < args.num_heads + cache.num_kv_heads;
      if (is_key) norm_and_rotate(args, args.k_norm, args.positions[token], x);
      const int64_t slot = args.slot_mapping[token];
      if (slot < 0) continue;
      const float scale = scale_of(is_key ? args.scales.keys : args.scales.values, kv_head);
      for (float& value : x) value /= scale;
      write(cache.dtype, is_key ? cache.keys : cache.values, offset_in_cache(cache, slot, kv_head),
            x);
    }
  }
}

void paged_attention(const ops::CudaPagedAttention& args) {
  for (int64_t seq = 0; seq < args.num_decode_seqs; ++seq) {
    const std::vector<int64_t> positions = positions_of_chunks(args, seq);
    const bool one_each = args.max_decode_queries == 1;
    const int64_t begin = one_each ? seq : args.query_start[seq];
    const int64_t end = one_each ? seq + 1 : args.query_start[seq + 1];
    attend_rows(args, seq, begin, end, args.context_lens[seq], positions);
  }
  for (int64_t seq = args.num_decode_seqs; seq < args.num_seqs; ++seq) {
    const int64_t context = args.context_lens[seq];
    std::vector<int64_t> positions(static_cast<size_t>(context));
    std::iota(positions.begin(), positions.end(), 0);
    attend_rows(args, seq, args.query_start[seq], args.query_start[seq + 1], context, positions);
  }
}

}  // namespace quire::simulated
