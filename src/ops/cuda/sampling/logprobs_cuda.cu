// Log-probabilities, in two kernels: the first reads the row once, the second reads again only the
// chunks of the most likely tokens.
#include "ops/cuda/sampling/row.cuh"
#include "ops/cuda/sampling/slice.cuh"

namespace quire::ops::cuda {
namespace {

// What is known of a slice, in the place of a SliceResult. Weights are relative to `max`.
struct SliceLogprobs {
  float max;
  float sum;
  int32_t num_before;  // tokens before the given one
};
static_assert(sizeof(SliceLogprobs) <= sizeof(SliceResult));

struct LogprobsRow {
  __device__ LogprobsRow(const CudaLogprobs& args, int64_t row)
      : logits(args.logits + row * args.stride),
        vocab(static_cast<int32_t>(args.vocab)),
        token{kMinusInfinity, max(args.token_ids[row], 0)} {
    token.logit = fmaxf(logits[token.id], kMinusInfinity);
  }
  const float* logits;
  int32_t vocab;
  Place token;
};

// Block (slice, row).
__global__ void __launch_bounds__(kScanThreads, 4) scan_logprobs(CudaLogprobs args) {
  __shared__ float warp_values[kScanWarps];
  __shared__ float warp_sums[kScanWarps];
  __shared__ int32_t num_before;
  release_next();
  wait_for_previous();
  const LogprobsRow row(args, blockIdx.y);
  const SampleScratch scratch(args.scratch, args.vocab, blockIdx.y);
  const ThreadPlace place = place_in(static_cast<int32_t>(blockIdx.x));
  ThreadLogits logits;
  load_slice(row.logits, row.vocab, place, logits);
  if (threadIdx.x == 0) num_before = 0;
  const float max = block_max(find_chunk_maxima(logits, place, scratch.chunk_maxima), warp_values);
  if (isfinite(max)) sum_warp_weights(logits, max, 1.0f, warp_sums);
  int32_t own_before = 0;
#pragma unroll
  for (int i = 0; i < kLogitsPerThread; ++i) {
    const int32_t id = id_at(place.first_id, i);
    const float logit = fmaxf(logits.at[i], kMinusInfinity);
    if (id < row.vocab && row.token.is_after(logit, id)) ++own_before;
  }
  own_before = __reduce_add_sync(0xffffffffu, own_before);
  if (threadIdx.x % kWarpSize == 0) atomicAdd(&num_before, own_before);
  __syncthreads();
  if (threadIdx.x != 0) return;
  const float sum = isfinite(max) ? sum_of_warps(warp_sums) : 0.0f;
  reinterpret_cast<SliceLogprobs*>(scratch.slices)[place.slice] = {max, sum, num_before};
}

// The logarithm of a row's sum of weights; 0 where its maximum is infinite.
__device__ double log_sum_of(RowSearch& search, const SliceLogprobs* slices) {
  // In units so small that rounding loses nothing of note, and so large that no sum overflows.
  constexpr double kUnit = 0x1p42;
  unsigned long long sum = 0;
  if (RowSearch::thread() < search.num_slices()) {
    const SliceLogprobs slice = slices[RowSearch::thread()];
    const double weight =
        isfinite(slice.max)
            ? exp(static_cast<double>(slice.max) - static_cast<double>(search.max()))
            : 0.0;
    sum = __double2ull_rn(weight * static_cast<double>(slice.sum) * kUnit);
  }
  sum = search.sum_of(sum);
  return isfinite(search.max()) ? log(static_cast<double>(sum) / kUnit) : 0.0;
}

__device__ float logprob_of(float logit, float max, double log_sum) {
  if (logit == max && !isfinite(max)) return max > 0.0f ? 0.0f : kMinusInfinity;
  return static_cast<float>(static_cast<double>(logit) - static_cast<double>(max) - log_sum);
}

// Writes tokens to their places in the order.
class TopTokens {
 public:
  __device__ TopTokens(const CudaLogprobs& args, RowSearch& search, double log_sum)
      : count_(args.num_top),
        ids_(args.top_ids + int64_t{blockIdx.x} * args.num_top),
        logprobs_(args.top_logprobs + int64_t{blockIdx.x} * args.num_top),
        search_(search),
        log_sum_(log_sum) {}

  __device__ void find() {
    const Listing listing = search_.collect_top(count_, kLowestLogit);
    if (listing.count <= kListSize) {
      order_list(static_cast<int32_t>(listing.count));
    } else {
      find_one_by_one(listing.bound);
    }
  }

 private:
  __device__ void write(int32_t at, const Place& token) {
    ids_[at] = token.id;
    logprobs_[at] = logprob_of(token.logit, search_.max(), log_sum_);
  }

  __device__ void order_list(int32_t num_listed) {
    const int thread = RowSearch::thread();
    if (thread < num_listed) {
      const Place own = search_.listed(thread);
      int32_t at = 0;
#pragma unroll 8
      for (int32_t i = 0; i < num_listed; ++i) {
        const Place other = search_.listed(i);
        at += own.is_after(other.logit, other.id) ? 1 : 0;
      }
      if (at < count_) write(at, own);
    } else if (thread < count_) {
      write(thread, {kMinusInfinity, -1});
    }
  }

  __device__ void find_one_by_one(float bound) {
    unsigned long long last = ~0ull;
    for (int32_t at = 0; at < count_; ++at) {
      unsigned long long best = 0;
      search_.visit_chunks_reaching(bound, [&](const float4& four, int32_t first_id) {
        RowSearch::for_each_of(four, first_id, bound, past_all(), [&](float logit, int32_t id) {
          const auto low = static_cast<unsigned long long>(0xffffffffu - static_cast<uint32_t>(id));
          const unsigned long long order =
              static_cast<unsigned long long>(key_of(logit)) << 32 | low;
          if (order < last && order > best) best = order;
        });
      });
      last = search_.max_of(best);
      const auto id = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(last));
      if (RowSearch::thread() == 0)
        write(at, {float_of_key(static_cast<uint32_t>(last >> 32)), id});
    }
  }

  int32_t count_;
  int32_t* ids_;
  float* logprobs_;
  RowSearch& search_;
  double log_sum_;
};

// Block (row).
__global__ void __launch_bounds__(kChooseThreads) finish_logprobs(CudaLogprobs args) {
  extern __shared__ float maxima[];
  __shared__ RowShared shared;
  release_next();
  wait_for_previous();
  const int64_t row_index = blockIdx.x;
  const LogprobsRow row(args, row_index);
  const SampleScratch scratch(args.scratch, args.vocab, row_index);
  auto* found_chunks = reinterpret_cast<int32_t*>(maxima + SampleScratch::num_chunks(args.vocab));
  RowSearch search(row.logits, row.vocab, scratch.chunk_maxima, shared, maxima, found_chunks);
  const auto* slices = reinterpret_cast<const SliceLogprobs*>(scratch.slices);
  const double log_sum = log_sum_of(search, slices);
  const int thread = RowSearch::thread();
  const int32_t num_before =
      search.sum_of(thread < search.num_slices() ? slices[thread].num_before : 0);
  if (thread == 0) {
    args.token_logprobs[row_index] = logprob_of(row.token.logit, search.max(), log_sum);
    args.token_ranks[row_index] = num_before + 1;
  }
  if (args.num_top > 0) TopTokens(args, search, log_sum).find();
}

}  // namespace

void logprobs(CudaStream& stream, const CudaLogprobs& args) {
  if (args.rows == 0) return;
  check_row_sizes(args.rows, args.vocab);
  check(args.num_top >= 0 && args.num_top <= kListSize, "a row has 0 to 512 top tokens");
  const auto slices = static_cast<unsigned>(SampleScratch::num_slices(args.vocab));
  const auto rows = static_cast<unsigned>(args.rows);
  launch(stream, scan_logprobs, dim3(slices, rows), dim3(kScanThreads), 0, args);
  launch(stream, finish_logprobs, dim3(rows), dim3(kChooseThreads),
         allow_search_bytes(stream, finish_logprobs, sizeof(RowShared), args.vocab), args);
}

}  // namespace quire::ops::cuda
