// Sampling: rows of logits to token ids, in two kernels. ops/sampling.h has the contract.
//
// With noise from a counter, a draw is an arg max, and needs no sorted row. Where top_k leaves few
// tokens, they are compared with each other. Elsewhere the best of all tokens is drawn first and
// then asked whether top_p keeps it, which takes the mass of the tokens before it; if not, the best
// of those before it is next. So the first draw is accepted with a probability of top_p, and its
// check reads only chunks that hold a token at least as likely.
//
// Counts and masses are sums of integers and draws are maxima: the order of the threads is nothing
// to them.
#include "ops/cuda/sampling/choose.cuh"
#include "ops/cuda/sampling/slice.cuh"

namespace quire::ops::cuda {
namespace {

// Calls visit(i, score) for each of the thread's logits: scores relative to the slice's maximum, in
// units of log(2), exact to kScoreMargin.
template <typename Visit>
__device__ __forceinline__ void for_each_score(const ThreadLogits& logits, int32_t first_id,
                                               NoiseKey key, float max, float scale,
                                               const Visit& visit) {
  const float log2_scale = scale * kLog2E;
#pragma unroll
  for (int i = 0; i < kLogitsPerThread; ++i) {
    const uint32_t bits = noise_bits(key, static_cast<uint32_t>(id_at(first_id, i)));
    visit(i, (logits.at[i] - max) * log2_scale + quick_noise(bits));
  }
}

struct Draw {
  unsigned long long rank = 0;
  float logit = kMinusInfinity;
};

// The best of the thread's tokens with scores of at least `bound`: compared in double precision,
// which takes long, unless there is one, and no other thread has any.
__device__ __forceinline__ Draw best_from(const SampleRow& row, const ThreadLogits& logits,
                                          int32_t first_id, float max, float bound,
                                          bool is_only_thread) {
  uint32_t reach_bound = 0;
  for_each_score(logits, first_id, row.key, max, row.scale(),
                 [&](int i, float score) { reach_bound |= (score >= bound ? 1u : 0u) << i; });
  const bool is_only = is_only_thread && (reach_bound & (reach_bound - 1)) == 0;
  Draw best;
  for (; reach_bound != 0; reach_bound &= reach_bound - 1) {
    const int32_t id = id_at(first_id, __ffs(static_cast<int>(reach_bound)) - 1);
    // Loaded again, since registers have no index.
    const float logit = id < row.vocab ? fmaxf(row.logits[id], kMinusInfinity) : kMinusInfinity;
    if (logit == kMinusInfinity) continue;
    const uint32_t bits = noise_bits(row.key, static_cast<uint32_t>(id));
    const double log_weight = static_cast<double>((logit - max) * row.scale());
    const unsigned long long rank = ranked(is_only ? 0.0 : log_weight + gumbel_noise_of(bits), id);
    if (rank > best.rank) best = {rank, logit};
  }
  return best;
}

struct ScanShared {
  float warp_values[2][kScanWarps];
  float warp_sums[kScanWarps];
  unsigned long long best;
};

// Block (slice, row): the chunks' maxima, and the slice's result where its row draws from it.
__global__ void __launch_bounds__(kScanThreads, 4) scan_logits(CudaSample args) {
  __shared__ ScanShared shared;
  release_next();
  wait_for_previous();
  const auto slice = static_cast<int32_t>(blockIdx.x);
  const int64_t row_index = blockIdx.y;
  const SampleRow row(args, row_index);
  if (args.kept_ids != nullptr && row.keeps(args.kept_ids[row_index])) return;
  const SampleScratch scratch(args.scratch, args.vocab, row_index);

  const ThreadPlace place = place_in(slice);
  ThreadLogits logits;
  load_slice(row.logits, row.vocab, place, logits, row.allowed);
  const float thread_max = find_chunk_maxima(logits, place, scratch.chunk_maxima);
  if (!row.draws_from_slices()) return;

  if (threadIdx.x == 0) shared.best = 0;
  const float max = block_max(thread_max, shared.warp_values[0]);
  if (!isfinite(max)) {
    if (threadIdx.x == 0) scratch.slices[slice] = {max, 0.0f, max, -1};
    return;
  }
  const float scale = row.scale();
  if (row.sums_slices()) sum_warp_weights(logits, max, scale, shared.warp_sums);
  float best_score = kMinusInfinity;
  for_each_score(logits, place.first_id, row.key, max, scale,
                 [&](int, float score) { best_score = fmaxf(best_score, score); });
  const float bound = block_max(best_score, shared.warp_values[1]) - 2 * kScoreMargin;
  const bool is_close = best_score >= bound;
  const bool is_only_thread = __syncthreads_count(is_close) == 1;
  Draw best;
  if (is_close) {
    best = best_from(row, logits, place.first_id, max, bound, is_only_thread);
    if (best.rank != 0) atomicMax(&shared.best, best.rank);
  }
  __syncthreads();
  if (best.rank == 0 || best.rank != shared.best) return;
  const float sum = row.sums_slices() ? sum_of_warps(shared.warp_sums) : 0.0f;
  scratch.slices[slice] = {max, sum, best.logit, id_of_ranked(best.rank)};
}

// Block (row).
__global__ void __launch_bounds__(kChooseThreads) choose_token(CudaSample args) {
  extern __shared__ float maxima[];
  __shared__ RowShared row_shared;
  __shared__ ChooseShared shared;
  release_next();
  wait_for_previous();
  const int64_t row_index = blockIdx.x;
  const SampleRow row(args, row_index);
  if (args.kept_ids != nullptr && row.keeps(args.kept_ids[row_index])) {
    if (threadIdx.x == 0) args.out[row_index] = args.kept_ids[row_index];
    return;
  }
  const SampleScratch scratch(args.scratch, args.vocab, row_index);
  auto* found_chunks = reinterpret_cast<int32_t*>(maxima + SampleScratch::num_chunks(args.vocab));
  RowSearch search(row.logits, row.vocab, scratch.chunk_maxima, row_shared, maxima, found_chunks,
                   row.allowed);
  const int32_t id = Chooser(search, row, scratch.slices, shared).choose();
  if (threadIdx.x == 0) args.out[row_index] = id;
}

}  // namespace

int64_t sample_scratch_bytes(int64_t rows, int64_t vocab) {
  return rows * SampleScratch::row_bytes(vocab);
}

void sample(CudaStream& stream, const CudaSample& args) {
  if (args.rows == 0) return;
  check_row_sizes(args.rows, args.vocab);
  const auto slices = static_cast<unsigned>(SampleScratch::num_slices(args.vocab));
  const auto rows = static_cast<unsigned>(args.rows);
  launch(stream, scan_logits, dim3(slices, rows), dim3(kScanThreads), 0, args);
  launch(stream, choose_token, dim3(rows), dim3(kChooseThreads),
         allow_search_bytes(stream, choose_token, sizeof(RowShared) + sizeof(ChooseShared),
                            args.vocab),
         args);
}

}  // namespace quire::ops::cuda
