#pragma once
// What the parts of the decoder step's kernel know of their block, and where things lie in memory.
#include "ops/cuda_kernels.h"
#include "ops/decoder_step_exchange.cuh"
#include "ops/decoder_step_ring.cuh"

namespace quire::ops::cuda::step {

inline constexpr int kMaxRows = kMaxDecoderStepRows;
// Tiles times rows of activations whose partial sums fit in shared memory at a time, and tiles of a
// block's share of the residual.
inline constexpr int kMaxSumTiles = 16;
inline constexpr int kMaxProjectionTiles = 2;
static_assert(kMaxProjectionTiles * kMaxRows <= kMaxSumTiles);

// The exchanges of a step, each [kMaxRows, its width], and the words that say which tags are new.
struct Exchanges {
  Word* after_attention;  // the residual
  Word* after_mlp;        // the residual
  Word* qkv;
  Word* attention;
  Word* inner;
  Word* partials;  // see decoder_step_attention.cuh
  uint32_t* last_tag;
  uint32_t* finished_blocks;
};

// Shared memory, in bytes from its beginning.
inline constexpr int kSumsAt = kNumSlots * kSlotBytes;
inline constexpr int kSumsBytes = kMaxSumTiles * kWarps * 20 * 4;
inline constexpr int kSquaresAt = kSumsAt + kSumsBytes;
inline constexpr int kLayersAt = kSquaresAt + 4 * kWarps * kMaxRows;
inline constexpr int kLayerBytes = sizeof(CudaDecoderLayer);
inline constexpr int kSharesAt = kLayersAt + 2 * kLayerBytes;
inline constexpr int kBarriersAt = kSharesAt + sizeof(BlockShares);
inline constexpr int kSharedBytes = kBarriersAt + kRingBarrierBytes;
static_assert(kLayersAt % 8 == 0 && kLayerBytes % 8 == 0 && kBarriersAt % 8 == 0);

// A computing thread's view of its block.
struct BlockState {
  int thread;
  int warp;
  int lane;
  int rows;  // of activations
  Ring ring;
  float* sums;     // partial sums; the attention's scratch
  float* squares;  // [kWarps][kMaxRows]

  // Of the computing threads.
  __device__ __forceinline__ void synchronize() const { hopper::named_wait(1, kComputeThreads); }
};

}  // namespace quire::ops::cuda::step
