#pragma once
// What the units of the decoder step's attention leave where a context is cut into chunks, and how
// that becomes outputs.
#include "ops/decoder_step_product.cuh"
#include "ops/decoder_step_work.cuh"

namespace quire::ops::cuda::step {

inline constexpr float kNoScore = -1e30f;  // finite, so that differences are numbers

// Partial results: [row][head][chunk][head_dim sums, greatest score, weight], a float32 a word.
__device__ __forceinline__ Word* partial_of(const CudaDecoderStep& args, Word* partials, int row,
                                            int head, int chunk) {
  return partials + ((static_cast<int64_t>(row) * args.num_heads + head) * kMaxChunks + chunk) *
                        (args.head_dim + 2);
}

// Scratch of a combination, in the block's partial sums.
struct CombineScratch {
  float sums[kMaxChunks][kCombinedElements];
  float greatest[kMaxChunks];
  float weights[kMaxChunks];
};

template <typename T>
__device__ __forceinline__ void combine(const BlockState& block, const CudaDecoderStep& args,
                                        const Exchanges& exchanges, uint32_t tag,
                                        const Combination& piece) {
  auto& scratch = *in_shared<CombineScratch>(kScratchAt);
#pragma unroll 1
  for (int chunk = block.warp; chunk < piece.num_chunks; chunk += kWarps) {
    const Word* from = partial_of(args, exchanges.partials, piece.row, piece.head, chunk);
    Word sum;
    Word greatest;
    Word weight;
    do {
      sum = load_word(from + piece.first_element + block.lane);
      load_two_words(from + args.head_dim, greatest, weight);
    } while (__any_sync(0xffffffffu,
                        tag_of(sum) != tag || tag_of(greatest) != tag || tag_of(weight) != tag));
    scratch.sums[chunk][block.lane] = __uint_as_float(payload_of(sum));
    scratch.greatest[chunk] = __uint_as_float(payload_of(greatest));
    scratch.weights[chunk] = __uint_as_float(payload_of(weight));
  }
  block.synchronize();
  if (block.warp == 0) {
    float greatest = kNoScore;
#pragma unroll 1
    for (int i = 0; i < piece.num_chunks; ++i) greatest = fmaxf(greatest, scratch.greatest[i]);
    float weight = 0;
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < piece.num_chunks; ++i) {
      const float factor = exp2f(scratch.greatest[i] - greatest);
      weight += factor * scratch.weights[i];
      sum += factor * scratch.sums[i][block.lane];
    }
    publish_pair<T>(exchanges.attention, args.num_heads * args.head_dim, piece.row,
                    piece.head * args.head_dim + piece.first_element + block.lane, sum / weight,
                    true, tag);
  }
  block.synchronize();
}

}  // namespace quire::ops::cuda::step
