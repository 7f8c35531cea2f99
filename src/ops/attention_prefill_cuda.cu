#include "ops/attention_cuda.cuh"
#include "ops/attention_prefill.cuh"

namespace quire::ops::cuda {

void prefill_attention(CudaStream& stream, const CudaPagedAttention& args) {
  // A tile of the Hopper kernel is 128 queries of one head, mostly empty where sequences have few;
  // one of the other is 64 or 128 rows of all heads that share a KV head.
  constexpr int64_t kFewQueries = 32;
  const bool are_few =
      args.max_query_len <= kFewQueries && args.num_heads > args.cache.num_kv_heads;
  const bool prefers_flash = are_few || flash_attention_splits(stream, args);
  if (!prefers_flash && hopper_attention(stream, args)) return;
  if (flash_attention(stream, args)) return;
  plain_attention(stream, args);
}

}  // namespace quire::ops::cuda
