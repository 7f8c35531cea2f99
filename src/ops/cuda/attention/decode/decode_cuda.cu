// Chooses the kernel of decode attention: for 16-bit activations that of tensor_core.cuh, where it
// has the head size and fits into shared memory, else that of plain.cuh. Steps of few sequences use
// decoder_step/attention.cuh, where one kernel runs the whole step.
#include <limits>
#include <string>

#include "base/ceil_div.h"
#include "ops/cuda/attention/attention.cuh"
#include "ops/cuda/attention/decode/launch.cuh"
#include "ops/cuda/attention/decode/plain.cuh"
#include "ops/cuda/math.cuh"
#include "quire/error.h"

namespace quire::ops::cuda {
namespace {

template <typename T, typename Kv>
void launch_plain(CudaStream& stream, const CudaPagedAttention& args) {
  constexpr int kBlocksPerMultiprocessor = 4;
  const DecodeParams params = decode_params(args, kPlainHeadTile);
  launch_decode(stream, plain_decode_attention<T, Kv>, kBlocksPerMultiprocessor, kDecodeThreads,
                plain_shared_bytes(args.cache.head_dim), args.max_decode_items * params.slots,
                params);
}

template <typename T>
void launch_plain_for(CudaStream& stream, const CudaPagedAttention& args) {
  if (args.cache.dtype == DType::kFloat8E4M3) {
    launch_plain<T, __nv_fp8_e4m3>(stream, args);
  } else if (args.cache.dtype == DType::kFloat8E5M2) {
    launch_plain<T, __nv_fp8_e5m2>(stream, args);
  } else {
    launch_plain<T, T>(stream, args);
  }
}

// Slots at the smallest head tile.
int64_t max_slots(int num_heads, int num_kv_heads, int64_t max_queries) {
  return num_kv_heads * ceil_div(num_heads / num_kv_heads * max_queries, kMinDecodeHeadTile);
}

void check_counters(int64_t num_seqs, int64_t slots) {
  if (num_seqs * slots * kDecodeWarps > kDecodeCounters) {
    throw Error("Decode attention takes at most " +
                std::to_string(kDecodeCounters / kDecodeWarps / slots) +
                " sequences of this model at a time, not " + std::to_string(num_seqs) +
                ": lower max_num_seqs.");
  }
}

}  // namespace

DecodeParams decode_params(const CudaPagedAttention& args, int head_tile) {
  const CudaKvCache& cache = args.cache;
  const int group = args.num_heads / cache.num_kv_heads;
  const int max_rows = group * static_cast<int>(args.max_decode_queries);
  const auto head_tiles = static_cast<int>(ceil_div(max_rows, head_tile));
  auto* counters = static_cast<unsigned*>(args.scratch);
  auto* partials = reinterpret_cast<float*>(counters + kDecodeCounters + kUnitCounterWords);
  const int64_t width = int64_t{args.num_heads} * cache.head_dim;
  return {.q = args.q,
          .q_stride = args.q_stride,
          .out = args.out,
          .num_heads = args.num_heads,
          .num_kv_heads = cache.num_kv_heads,
          .group = group,
          .max_rows = max_rows,
          .head_tile = head_tile,
          .head_tiles = head_tiles,
          .slots = cache.num_kv_heads * head_tiles,
          .scale_log2 = args.scale * kLog2E,
          .sliding_window = static_cast<int>(
              std::min<int64_t>(args.sliding_window, std::numeric_limits<int>::max())),
          .query_start = args.max_decode_queries > 1 ? args.query_start : nullptr,
          .block_tables = args.block_tables,
          .table_width = args.table_width,
          .items = args.decode_items,
          .num_items = args.num_decode_items,
          .keys = cache.keys,
          .values = cache.values,
          .key_scales = args.scales.keys,
          .value_scales = args.scales.values,
          .block_size = cache.block_size,
          .head_dim = cache.head_dim,
          .counters = counters,
          .units_taken = counters + kDecodeCounters,
          .maxima_sums = reinterpret_cast<float2*>(partials + args.max_decode_rows * width),
          .partials = partials};
}

void decode_attention(CudaStream& stream, const CudaPagedAttention& args) {
  if (args.max_decode_items == 0) return;
  check_counters(args.num_decode_seqs,
                 max_slots(args.num_heads, args.cache.num_kv_heads, args.max_decode_queries));
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2) {
      const bool is_done = args.max_decode_queries > 1 ? launch_mma_decode<T, true>(stream, args)
                                                       : launch_mma_decode<T, false>(stream, args);
      if (is_done) return;
    }
    launch_plain_for<T>(stream, args);
  });
}

int64_t paged_attention_scratch_bytes(int64_t max_decode_rows, int64_t max_num_seqs,
                                      int64_t max_decode_queries, int num_heads, int num_kv_heads,
                                      int head_dim) {
  check_counters(max_num_seqs, max_slots(num_heads, num_kv_heads, max_decode_queries));
  const int64_t width = int64_t{num_heads} * head_dim;
  return static_cast<int64_t>(sizeof(unsigned)) * (kDecodeCounters + kUnitCounterWords) +
         max_decode_rows * (width * static_cast<int64_t>(sizeof(float)) +
                            width / 8 * static_cast<int64_t>(sizeof(float2)));
}

}  // namespace quire::ops::cuda
