#pragma once
// What the parts of the decoder step's kernel know of their block, and where things lie in memory.
#include "ops/cuda_kernels.h"
#include "ops/decoder_step_exchange.cuh"
#include "ops/decoder_step_ring.cuh"
#include "ops/decoder_step_work.cuh"

namespace quire::ops::cuda::step {

// Tiles times rows of activations whose partial sums fit in shared memory at a time, and tiles of a
// block's share of the residual.
inline constexpr int kMaxSumTiles = 16;
inline constexpr int kMaxProjectionTiles = 2;
// Of one warp and row of activations: a tile's 16 features, padded so that a warp's stores lie in
// different banks.
inline constexpr int kSumStride = 20;
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
inline constexpr int kSumsBytes = 12 * 1024;
static_assert(kMaxSumTiles * kWarps * kSumStride * 4 <= kSumsBytes);
static_assert(kMaxSumTiles * 2 * kGroupRows <= kComputeThreads);
inline constexpr int kSquaresAt = kSumsAt + kSumsBytes;
inline constexpr int kLayersAt = kSquaresAt + 4 * kWarps * kMaxRows;
inline constexpr int kLayerBytes = sizeof(CudaDecoderLayer);
inline constexpr int kSharesAt = kLayersAt + 2 * kLayerBytes;
inline constexpr int kWorkAt = kSharesAt + sizeof(BlockShares);
inline constexpr int kBarriersAt = kWorkAt + sizeof(WorkList);
inline constexpr int kSharedBytes = kBarriersAt + kRingBarrierBytes;
static_assert(kLayersAt % 8 == 0 && kLayerBytes % 8 == 0 && kWorkAt % 8 == 0 &&
              kBarriersAt % 8 == 0);

// What lies there, by a pointer that the compiler knows to be to shared memory.
template <typename What>
__device__ __forceinline__ What* in_shared(int at) {
  extern __shared__ __align__(128) unsigned char decoder_step_shared[];
  return reinterpret_cast<What*>(decoder_step_shared + at);
}

// Which of a batch of tiles' results a thread adds up: adjacent threads have adjacent features.
struct Result {
  int tile;
  int row;
  int feature;  // within the tile
};

// A computing thread's view of its block.
struct BlockState {
  int thread;
  int warp;
  int lane;
  int rows;              // of activations
  int tiles_per_batch;   // whose partial sums fit
  Result of_group;       // where tiles have 8 features
  Result of_tile;        // where they have 16
  uint32_t tile_offset;  // of the lane's part of a slot
  uint32_t block_size_reciprocal;
  Ring ring;

  __device__ BlockState(int thread, int rows, int block_size, const Ring& ring)
      : thread(thread),
        warp(thread / 32),
        lane(thread % 32),
        rows(rows),
        tiles_per_batch(kMaxSumTiles / rows),
        of_group(result_of(thread, kGroupRows, rows)),
        of_tile(result_of(thread, 2 * kGroupRows, rows)),
        tile_offset(lane / 4 * kSlotRowBytes + 16 * (lane % 4) + warp * kSlotColumns * 2 / kWarps),
        block_size_reciprocal(0xffffffffu / static_cast<uint32_t>(block_size) + 1),
        ring(ring) {}

  static __device__ Result result_of(int thread, int features, int rows) {
    const int rest = thread / features;
    return {rest / rows, rest % rows, thread % features};
  }

  // Partial sums; the attention's scratch.
  static __device__ __forceinline__ float* sums() { return in_shared<float>(kSumsAt); }
  // [kWarps][kMaxRows]
  static __device__ __forceinline__ float* squares() { return in_shared<float>(kSquaresAt); }
  static __device__ __forceinline__ WorkList& work() { return *in_shared<WorkList>(kWorkAt); }
  static __device__ __forceinline__ BlockShares& shares() {
    return *in_shared<BlockShares>(kSharesAt);
  }
  // This layer's and the next one's.
  static __device__ __forceinline__ CudaDecoderLayer& layer(int i) {
    return in_shared<CudaDecoderLayer>(kLayersAt)[i % 2];
  }

  // Of the computing threads.
  __device__ __forceinline__ void synchronize() const { hopper::named_wait(1, kComputeThreads); }
};

}  // namespace quire::ops::cuda::step
