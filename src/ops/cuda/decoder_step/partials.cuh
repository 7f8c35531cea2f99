#pragma once
// What the units of the decoder step's attention leave where a context is cut into chunks, and how
// that becomes outputs.
#include "ops/cuda/decoder_step/product.cuh"
#include "ops/cuda/decoder_step/work.cuh"

namespace quire::ops::cuda::step {

inline constexpr float kNoScore = -1e30f;  // finite, so that differences are numbers

// Partial results: [row][head][chunk][head_dim sums, greatest score, weight], a float32 a word.
__device__ __forceinline__ Word* partial_of(const CudaDecoderStep& args, Word* partials, int row,
                                            int head, int chunk) {
  return partials + ((static_cast<int64_t>(row) * args.num_heads + head) * kMaxChunks + chunk) *
                        (args.head_dim + 2);
}

// By one warp, an element a lane: all of a batch of chunks is on its way at a time.
template <typename T>
__device__ __forceinline__ void combine(const BlockState& block, const CudaDecoderStep& args,
                                        const Exchanges& exchanges, uint32_t tag,
                                        const Combination& piece) {
  constexpr int kAtOnce = 6;
  const Word* from = partial_of(args, exchanges.partials, piece.row, piece.head, 0);
  const int stride = args.head_dim + 2;
  float greatest = kNoScore;
  float weight = 0;
  float sum = 0;
#pragma unroll 1
  for (int first = 0; first < piece.num_chunks; first += kAtOnce) {
    Word sums[kAtOnce];
    Word scores[kAtOnce];
    Word weights[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      sums[i] = weights[i] = make_word(0, tag);
      scores[i] = make_word(__float_as_uint(kNoScore), tag);
    }
    bool complete;
    do {
      complete = true;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= piece.num_chunks) continue;
        const Word* chunk = from + (first + i) * stride;
        sums[i] = load_word(chunk + piece.first_element + block.lane);
        load_two_words(chunk + args.head_dim, scores[i], weights[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        complete = complete && tag_of(sums[i]) == tag && tag_of(scores[i]) == tag &&
                   tag_of(weights[i]) == tag;
      }
    } while (__any_sync(0xffffffffu, !complete));
    float new_greatest = greatest;
#pragma unroll
    for (const Word score : scores) {
      new_greatest = fmaxf(new_greatest, __uint_as_float(payload_of(score)));
    }
    const float before = exp2f(greatest - new_greatest);
    greatest = new_greatest;
    weight *= before;
    sum *= before;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float factor = exp2f(__uint_as_float(payload_of(scores[i])) - greatest);
      weight += factor * __uint_as_float(payload_of(weights[i]));
      sum += factor * __uint_as_float(payload_of(sums[i]));
    }
  }
  publish_pair<T>(exchanges.attention, args.num_heads * args.head_dim, piece.row,
                  piece.head * args.head_dim + piece.first_element + block.lane, sum / weight, true,
                  tag);
}

}  // namespace quire::ops::cuda::step
