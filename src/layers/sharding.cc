#include "layers/sharding.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"

namespace quire {
namespace {

IndexRange share_of(int64_t total, ParallelRank at) {
  check(total % at.size == 0, "a layer's features are a multiple of the number of ranks");
  const int64_t share = total / at.size;
  return {at.rank * share, (at.rank + 1) * share};
}

// Appends the part that takes `rows` of a tensor [features, k], and the same of its bias.
void add_rows(LinearShard& shard, int64_t features, IndexRange rows) {
  shard.weight_parts.push_back({{features, shard.k}, rows, {0, shard.k}, shard.n});
  if (shard.bias) shard.bias_parts.push_back({{features}, rows, {0, 1}, shard.n});
  shard.n += rows.size();
}

}  // namespace

LinearShard replicated_linear(int64_t n, int64_t k, bool bias) {
  LinearShard shard{.k = k, .bias = bias};
  add_rows(shard, n, {0, n});
  return shard;
}

LinearShard column_parallel_linear(std::span<const int64_t> features, int64_t k, bool bias,
                                   ParallelRank at) {
  LinearShard shard{.k = k, .bias = bias};
  for (const int64_t n : features) add_rows(shard, n, share_of(n, at));
  return shard;
}

LinearShard row_parallel_linear(int64_t n, int64_t k, bool bias, ParallelRank at) {
  const IndexRange columns = share_of(k, at);
  LinearShard shard{.n = n, .k = columns.size(), .bias = bias, .partial_sum = at.size > 1};
  shard.weight_parts.push_back({{n, k}, {0, n}, columns, 0});
  if (bias) shard.bias_parts.push_back({{n}, {0, n}, {0, 1}, 0});
  return shard;
}

int64_t kv_heads_of_rank(int64_t num_kv_heads, int size) {
  check(num_kv_heads % size == 0 || size % num_kv_heads == 0,
        "KV heads are split evenly over ranks, or ranks over KV heads");
  return std::max<int64_t>(1, num_kv_heads / size);
}

IndexRange kv_heads_at(int64_t num_kv_heads, ParallelRank at) {
  const int64_t first = at.rank * num_kv_heads / at.size;
  return {first, first + kv_heads_of_rank(num_kv_heads, at.size)};
}

LinearShard qkv_linear(int64_t hidden_size, int64_t num_heads, int64_t num_kv_heads,
                       int64_t head_dim, bool bias, ParallelRank at) {
  LinearShard shard{.k = hidden_size, .bias = bias};
  const IndexRange heads = share_of(num_heads, at);
  const IndexRange kv_heads = kv_heads_at(num_kv_heads, at);
  const IndexRange kv_rows{kv_heads.begin * head_dim, kv_heads.end * head_dim};
  add_rows(shard, num_heads * head_dim, {heads.begin * head_dim, heads.end * head_dim});
  add_rows(shard, num_kv_heads * head_dim, kv_rows);
  add_rows(shard, num_kv_heads * head_dim, kv_rows);
  return shard;
}

VocabShard vocab_shard(int64_t vocab_size, int64_t hidden_size, ParallelRank at) {
  const int64_t rows = ceil_div(vocab_size, at.size);
  const int64_t begin = std::min(vocab_size, at.rank * rows);
  const int64_t end = std::min(vocab_size, begin + rows);
  return {vocab_size,
          at.rank * rows,
          rows,
          {{{vocab_size, hidden_size}, {begin, end}, {0, hidden_size}, 0}}};
}

}  // namespace quire
