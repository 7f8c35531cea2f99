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
#include "ops/sampling.cuh"
#include "ops/sampling_choose.cuh"

namespace quire::ops::cuda {
namespace {

// A thread's logits are its four of each of its warp's chunks.
struct ThreadLogits {
  float at[kChunksPerWarp][4];
};

// Id of a thread's logit (chunk, i).
__device__ __forceinline__ int32_t id_at(int32_t first_id, int chunk, int i) {
  return first_id + chunk * kChunk + i;
}

// A bound from below of the score that the slice's winner has, from two tokens of each thread, and
// a bound from above of any score of the thread.
struct ScoreBounds {
  float reached;
  float most;
};

__device__ __forceinline__ ScoreBounds bound_scores(const ThreadLogits& logits, int32_t first_id,
                                                    NoiseKey key, float max, float scale) {
  float best_logit = kMinusInfinity;
  uint32_t bits_of_best = 0;
  uint32_t most_bits = 0;
  float logit_of_most = kMinusInfinity;
#pragma unroll
  for (int chunk = 0; chunk < kChunksPerWarp; ++chunk) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float logit = logits.at[chunk][i];
      const uint32_t bits = noise_bits(key, static_cast<uint32_t>(id_at(first_id, chunk, i)));
      if (logit > best_logit) {
        best_logit = logit;
        bits_of_best = bits;
      }
      if (bits >= most_bits) {
        most_bits = bits;
        logit_of_most = logit;
      }
    }
  }
  const float most_noise = quick_gumbel_noise(most_bits);
  const float log_weight = (best_logit - max) * scale;
  return {fmaxf(log_weight + quick_gumbel_noise(bits_of_best),
                (logit_of_most - max) * scale + most_noise),
          log_weight + most_noise};
}

struct Draw {
  unsigned long long rank = 0;
  float logit = kMinusInfinity;
};

// The thread's best token, or none where it cannot reach `reached`. A handful of tokens of a slice
// get as far as the logarithms.
__device__ __forceinline__ Draw draw_from(const ThreadLogits& logits, int32_t first_id,
                                          NoiseKey key, float max, float scale, float reached,
                                          float best_log_weight) {
  Draw best;
  const uint32_t limit = most_inverted_bits(reached, best_log_weight);
#pragma unroll
  for (int chunk = 0; chunk < kChunksPerWarp; ++chunk) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t id = id_at(first_id, chunk, i);
      const uint32_t bits = noise_bits(key, static_cast<uint32_t>(id));
      const float logit = logits.at[chunk][i];
      if (~bits > limit || logit == kMinusInfinity) continue;
      const double score = static_cast<double>((logit - max) * scale) + gumbel_noise_of(bits);
      const unsigned long long rank = ranked(score, id);
      if (rank > best.rank) best = {rank, logit};
    }
  }
  return best;
}

struct ScanShared {
  float warp_values[2][kScanThreads / kWarpSize];
  float warp_sums[kScanThreads / kWarpSize];
  unsigned long long best;
};

// The maximum over the block. `shared` is not used for anything else.
__device__ __forceinline__ float block_max(float value, float* shared) {
  value = warp_max(value);
  if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  for (int warp = 0; warp < kScanThreads / kWarpSize; ++warp) value = fmaxf(value, shared[warp]);
  return value;
}

__device__ __forceinline__ void sum_warp_weights(const ThreadLogits& logits, float max, float scale,
                                                 ScanShared& shared) {
  float sum = 0.0f;
#pragma unroll
  for (int chunk = 0; chunk < kChunksPerWarp; ++chunk) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += weight_of((logits.at[chunk][i] - max) * scale);
  }
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  if (threadIdx.x % kWarpSize == 0) shared.warp_sums[threadIdx.x / kWarpSize] = sum;
}

// Block (row, slice): the chunks' maxima, and the slice's result where its row draws from it.
__global__ void __launch_bounds__(kScanThreads, 5) scan_logits(CudaSample args) {
  __shared__ ScanShared shared;
  release_next();
  wait_for_previous();
  const auto num_slices = static_cast<uint32_t>(SampleScratch::num_slices(args.vocab));
  const uint32_t slice = blockIdx.x % num_slices;
  const int64_t row_index = blockIdx.x / num_slices;
  const SampleRow row(args, row_index);
  const SampleScratch scratch(args, row_index);

  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int32_t first_chunk = static_cast<int32_t>(slice) * kChunksPerSlice + warp * kChunksPerWarp;
  const int32_t first_id = first_chunk * kChunk + lane * 4;
  ThreadLogits logits;
#pragma unroll
  for (int chunk = 0; chunk < kChunksPerWarp; ++chunk) {
    const float4 four = load_logits(row.logits, row.vocab, first_id + chunk * kChunk);
    logits.at[chunk][0] = four.x;
    logits.at[chunk][1] = four.y;
    logits.at[chunk][2] = four.z;
    logits.at[chunk][3] = four.w;
  }
  float thread_max = kMinusInfinity;
#pragma unroll
  for (int chunk = 0; chunk < kChunksPerWarp; ++chunk) {
    const float* four = logits.at[chunk];
    const float most = fmaxf(fmaxf(four[0], four[1]), fmaxf(four[2], four[3]));
    const float chunk_max = warp_max(most);
    if (lane == 0) scratch.chunk_maxima[first_chunk + chunk] = chunk_max;
    thread_max = fmaxf(thread_max, most);
  }
  if (!row.draws_from_slices()) return;

  if (threadIdx.x == 0) shared.best = 0;
  const float max = block_max(thread_max, shared.warp_values[0]);
  if (!isfinite(max)) {
    if (threadIdx.x == 0) scratch.slices[slice] = {max, 0.0f, max, -1};
    return;
  }
  const float scale = row.scale();
  if (row.sums_slices()) sum_warp_weights(logits, max, scale, shared);
  const ScoreBounds bounds = bound_scores(logits, first_id, row.key, max, scale);
  const float reached = block_max(bounds.reached, shared.warp_values[1]);
  Draw best;
  if (bounds.most + 1e-3f >= reached) {
    best = draw_from(logits, first_id, row.key, max, scale, reached, (thread_max - max) * scale);
    if (best.rank != 0) atomicMax(&shared.best, best.rank);
  }
  __syncthreads();
  if (best.rank == 0 || best.rank != shared.best) return;
  float sum = 0.0f;
  if (row.sums_slices()) {
    for (const float warp_sum : shared.warp_sums) sum += warp_sum;
  }
  scratch.slices[slice] = {max, sum, best.logit, id_of_ranked(best.rank)};
}

// Block (row).
__global__ void __launch_bounds__(kChooseThreads) choose_token(CudaSample args) {
  extern __shared__ float chunks[];
  __shared__ ChooseShared shared;
  release_next();
  wait_for_previous();
  const int64_t row_index = blockIdx.x;
  const SampleRow row(args, row_index);
  const int64_t num_chunks = SampleScratch::num_chunks(args.vocab);
  Chooser chooser(row, SampleScratch(args, row_index), shared, chunks,
                  reinterpret_cast<int32_t*>(chunks + num_chunks));
  const int32_t id = chooser.choose();
  if (threadIdx.x == 0) args.out[row_index] = id;
}

}  // namespace

int64_t sample_scratch_bytes(int64_t rows, int64_t vocab) {
  return rows * SampleScratch::row_bytes(vocab);
}

void sample(CudaStream& stream, const CudaSample& args) {
  if (args.rows == 0) return;
  check(args.vocab >= 1 && args.vocab <= kMostTokens, "a vocabulary has 1 to 2^24 tokens");
  const auto blocks = static_cast<unsigned>(args.rows * SampleScratch::num_slices(args.vocab));
  launch(stream, scan_logits, dim3(blocks), dim3(kScanThreads), 0, args);
  const auto shared_bytes = static_cast<size_t>(SampleScratch::num_chunks(args.vocab)) *
                            (sizeof(float) + sizeof(int32_t));
  constexpr size_t kAlwaysAllowed = size_t{32} << 10;
  if (shared_bytes > kAlwaysAllowed) {
    check_cuda(cudaFuncSetAttribute(choose_token, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "sampling from a large vocabulary");
  }
  launch(stream, choose_token, dim3(static_cast<unsigned>(args.rows)), dim3(kChooseThreads),
         shared_bytes, args);
}

}  // namespace quire::ops::cuda
