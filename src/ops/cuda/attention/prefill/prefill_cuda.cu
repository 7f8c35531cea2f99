#include "ops/cuda/attention/attention.cuh"
#include "ops/cuda/attention/prefill/prefill.cuh"

namespace quire::ops::cuda {

namespace {

// A tile of the Hopper kernel has queries of one head, and is mostly empty where sequences have
// few; one of the other has rows of all heads that share a KV head. That pays from groups of four
// on, and with enough sequences for a device: measured on an H200.
bool are_better_together(const CudaPagedAttention& args) {
  constexpr int kLeastGroup = 4;
  constexpr int64_t kLeastBlocks = 256;
  const int64_t blocks = (args.num_seqs - args.num_decode_seqs) * args.cache.num_kv_heads;
  return args.max_query_len <= kFewQueries &&
         args.num_heads >= kLeastGroup * args.cache.num_kv_heads && blocks >= kLeastBlocks;
}

}  // namespace

void prefill_attention(CudaStream& stream, const CudaPagedAttention& args) {
  const bool prefers_flash = are_better_together(args) || flash_attention_splits(stream, args);
  if (!prefers_flash && hopper_attention(stream, args)) return;
  if (flash_attention(stream, args)) return;
  plain_attention(stream, args);
}

}  // namespace quire::ops::cuda
