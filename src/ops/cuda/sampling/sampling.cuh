#pragma once
// What the two kernels of sampling share: how a row is cut, what the first leaves for the second,
// and the arithmetic of weights and noise.
//
// A row is read once by the first kernel, in slices, one a block. It leaves the maximum of every
// chunk, so that the second, one block a row, reads again only the few chunks that matter; and of
// rows that draw from all tokens, each slice's winner.
//
// Thread safety: pure functions.
#include <cstdint>

#include "core/launch.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/math.cuh"
#include "ops/sampling_noise.h"

namespace quire::ops::cuda {

inline constexpr int kWarpSize = 32;
// What a warp loads at once, four logits a lane.
inline constexpr int kChunk = 4 * kWarpSize;
// At 16 logits a thread, 38 slices of a vocabulary of 151,936: enough to spread one row, few enough
// that a slice's end is little beside its reading.
inline constexpr int kScanThreads = 256;
inline constexpr int kChunksPerWarp = 4;
inline constexpr int kChunksPerSlice = kChunksPerWarp * kScanThreads / kWarpSize;
inline constexpr int kSlice = kChunksPerSlice * kChunk;

// So that what is known of each chunk fits into shared memory. Ids have 24 bits in ranked().
inline constexpr int64_t kMostTokens = kMaxVocabSize;

// What is known of a slice of a row that draws from all tokens. Weights are relative to `max`.
struct SliceResult {
  float max;
  float sum;    // of the weights; only where it is asked for
  float logit;  // of the token that won
  int32_t id;   // -1: every logit is at -infinity
};

struct SampleRow {
  explicit __device__ SampleRow(const CudaSample& args, int64_t row)
      : logits(args.logits + row * args.stride),
        vocab(static_cast<int32_t>(args.vocab)),
        temperature(args.temperature[row]),
        top_p(args.top_p[row]),
        min_p(args.min_p[row]),
        top_k(args.top_k[row]),
        key{args.noise_keys[2 * row], args.noise_keys[2 * row + 1]},
        allowed(mask_of(args, row)) {}

  // Null: every token may come.
  static __device__ const uint32_t* mask_of(const CudaSample& args, int64_t row) {
    const int32_t mask_row = args.mask_rows == nullptr ? -1 : args.mask_rows[row];
    return mask_row < 0 ? nullptr : args.masks + mask_row * ((args.vocab + 31) / 32);
  }
  // Whether the row's result is the token that was chosen before.
  __device__ bool keeps(int32_t id) const {
    return allowed == nullptr || id < 0 || (allowed[id / 32] >> (id % 32) & 1u) != 0;
  }

  __device__ bool is_greedy() const { return temperature == 0.0f; }
  __device__ bool has_top_k() const { return top_k > 0 && top_k < vocab; }
  __device__ bool has_top_p() const { return top_p < 1.0f; }
  // Whether the first kernel draws a winner of each slice, and sums the slice's weights.
  __device__ bool draws_from_slices() const { return !is_greedy() && !has_top_k(); }
  __device__ bool sums_slices() const {
    return draws_from_slices() && has_top_p() && !(min_p > 0.0f);
  }
  // Bounded so that the best token's 0 stays 0 at temperatures that have no finite reciprocal.
  __device__ float scale() const { return fminf(1.0f / temperature, 1e30f); }

  const float* logits;
  int32_t vocab;
  float temperature;
  float top_p;
  float min_p;
  int32_t top_k;
  NoiseKey key;
  const uint32_t* allowed;
};

// Where the first kernel's results of a row are in the scratch memory.
struct SampleScratch {
  static __host__ __device__ int64_t num_chunks(int64_t vocab) {
    return (vocab + kChunk - 1) / kChunk;
  }
  static __host__ __device__ int64_t num_slices(int64_t vocab) {
    return (vocab + kSlice - 1) / kSlice;
  }
  // Whole slices, so that rows stay aligned.
  static __host__ __device__ int64_t row_bytes(int64_t vocab) {
    return num_slices(vocab) *
           static_cast<int64_t>(sizeof(SliceResult) + kChunksPerSlice * sizeof(float));
  }
  __device__ SampleScratch(void* scratch, int64_t vocab, int64_t row)
      : slices(
            reinterpret_cast<SliceResult*>(static_cast<char*>(scratch) + row * row_bytes(vocab))),
        chunk_maxima(reinterpret_cast<float*>(slices + num_slices(vocab))) {}

  SliceResult* slices;
  float* chunk_maxima;
};

inline void check_row_sizes(int64_t rows, int64_t vocab) {
  check(vocab >= 1 && vocab <= kMostTokens, "a vocabulary has 1 to 2^21 tokens");
  check(rows <= kMaxStepLogitsRows, "a step samples at most kMaxStepLogitsRows tokens");
}

inline constexpr float kMinusInfinity = -__builtin_huge_valf();
inline constexpr float kLowestLogit = -3.402823466e38f;

// Four logits from `at` on; NaN and what lies beyond the row are -infinity.
__device__ __forceinline__ float4 load_logits(const float* logits, int32_t vocab, int32_t at) {
  float4 v = {kMinusInfinity, kMinusInfinity, kMinusInfinity, kMinusInfinity};
  if (at + 4 <= vocab) {
    v = *reinterpret_cast<const float4*>(logits + at);
  } else {
    if (at < vocab) v.x = logits[at];
    if (at + 1 < vocab) v.y = logits[at + 1];
    if (at + 2 < vocab) v.z = logits[at + 2];
  }
  // fmaxf returns the other argument where one is NaN.
  return {fmaxf(v.x, kMinusInfinity), fmaxf(v.y, kMinusInfinity), fmaxf(v.z, kMinusInfinity),
          fmaxf(v.w, kMinusInfinity)};
}

// The same with those at -infinity that may not come; `at` is a multiple of 4. Null: all may.
__device__ __forceinline__ float4 mask_logits(const float4& v, const uint32_t* allowed,
                                              int32_t vocab, int32_t at) {
  if (allowed == nullptr || at >= vocab) return v;
  const uint32_t bits = allowed[at / 32] >> (at % 32);
  return {(bits & 1u) != 0 ? v.x : kMinusInfinity, (bits & 2u) != 0 ? v.y : kMinusInfinity,
          (bits & 4u) != 0 ? v.z : kMinusInfinity, (bits & 8u) != 0 ? v.w : kMinusInfinity};
}

__device__ __forceinline__ float max_of(const float4& v) {
  return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
}

// Keys are in the order of the numbers, which are no NaN; both zeros have the same.
__device__ __forceinline__ uint32_t key_of(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float float_of_key(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// Of values that are no NaN, as integers in their order.
__device__ __forceinline__ float warp_max(float value) {
  const int bits = __float_as_int(value);
  const int most = __reduce_max_sync(0xffffffffu, bits ^ ((bits >> 31) & 0x7fffffff));
  return __int_as_float(most ^ ((most >> 31) & 0x7fffffff));
}

// A token's score and its id as one number: the greatest belongs to the best score, and of equal
// ones to the lowest id. A score has 28 bits of mantissa; 0 is less than any.
__device__ __forceinline__ unsigned long long ranked(double score, int32_t id) {
  const long long bits = __double_as_longlong(score);
  const unsigned long long ordered =
      static_cast<unsigned long long>(bits) ^ (bits < 0 ? ~0ull : 1ull << 63);
  return ((ordered >> 24) << 24) | (0xffffffull - static_cast<unsigned long long>(id));
}

__device__ __forceinline__ int32_t id_of_ranked(unsigned long long rank) {
  return static_cast<int32_t>(0xffffffull - (rank & 0xffffffull));
}

// The score again, rounded towards -infinity.
__device__ __forceinline__ double score_of_ranked(unsigned long long rank) {
  const unsigned long long ordered = (rank >> 24) << 24;
  return __longlong_as_double(
      static_cast<long long>(ordered ^ ((ordered >> 63) != 0 ? 1ull << 63 : ~0ull)));
}

__device__ __forceinline__ double gumbel_noise_of(uint32_t bits) {
  return -log(-log((static_cast<double>(bits) + 0.5) * 0x1p-32));
}

// The hardware's own, where denormal numbers are zeros.
__device__ __forceinline__ float quick_log2(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// The same in units of log(2), up to a constant, from single precision: -log2(-log2(u)). Where u is
// close to 1, its logarithm comes from 1 - u.
__device__ __forceinline__ float quick_noise(uint32_t bits) {
  const bool is_near_one = bits >= 0xfd000000u;  // 1 - u < 0.012
  const float x = fmaf(static_cast<float>(is_near_one ? ~bits : bits), 0x1p-32f, 0x1p-33f);
  const float from_rest = x * (kLog2E + x * (0.5f * kLog2E));
  return -quick_log2(is_near_one ? from_rest : -quick_log2(x));
}

// No less than the error of quick_noise(): about 1e-4, of x^3 / 3 beside x and of the hardware's
// logarithm near 1.
inline constexpr float kScoreMargin = 1e-3f;

// A token of log weight at most `log_weight` can have a score of `best` only if ~noise_bits is at
// most this. It takes noise above d = best - log weight, where 1 - u <= -log(u) < e^-d; the margins
// cover all rounding.
__device__ __forceinline__ uint32_t most_inverted_bits(float best, float log_weight) {
  const float d = best - log_weight - 1e-3f;
  return d <= 0.0f ? 0xffffffffu : __float2uint_rn(__expf(-d) * 1.0001f * 0x1p32f + 2.0f);
}

__device__ __forceinline__ float weight_of(float log_weight) {
  return fast_exp2(log_weight * kLog2E);
}

}  // namespace quire::ops::cuda
