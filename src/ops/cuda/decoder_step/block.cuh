#pragma once
// What the parts of the decoder step's kernel know of their block, and where things lie in memory.
#include "ops/cuda/decoder_step/exchange.cuh"
#include "ops/cuda/decoder_step/ring.cuh"
#include "ops/cuda/decoder_step/work.cuh"
#include "ops/cuda/decoder_step_kernels.h"

namespace quire::ops::cuda::step {

// The exchanges of a step, each [kMaxRows, its width], and the words that say which tags are new.
struct Exchanges {
  Word* after_attention;  // the residual
  Word* after_mlp;        // the residual
  Word* qkv;
  Word* attention;
  Word* inner;
  Word* partials;  // see attention.cuh
  Word* lora;      // see adapters.cuh; for each of a layer's matrices so many words
  int64_t lora_words;
  uint32_t* last_tag;
  uint32_t* finished_blocks;
};

// Shared memory, in bytes from its beginning. What depends on the sizes comes last: the scratch of
// the attention, which is also the products' partial sums, the activations, the ring.
inline constexpr int kSquaresAt = 0;
inline constexpr int kLayersAt = kSquaresAt + 4 * kWarps * kMaxRows;
inline constexpr int kLayerBytes = sizeof(CudaDecoderLayer);
inline constexpr int kSharesAt = kLayersAt + 2 * kLayerBytes;
inline constexpr int kWorkAt = kSharesAt + sizeof(BlockShares);
inline constexpr int kFillerUnitsAt = kWorkAt + sizeof(WorkList);
inline constexpr int kBarriersAt = kFillerUnitsAt + sizeof(UnitList);
inline constexpr int kScratchAt = (kBarriersAt + kRingBarrierBytes + 127) / 128 * 128;
// Of a unit with one of the step's own tokens; each further one takes more.
inline constexpr int kAttentionScratchBytes = 12 * 1024;
inline constexpr int kOwnTokenBytes = 2 * 2 * 128;  // of the larger heads
static_assert(kLayersAt % 8 == 0 && kLayerBytes % 8 == 0 && kWorkAt % 8 == 0 &&
              kFillerUnitsAt % 8 == 0 && kBarriersAt % 8 == 0);

struct SharedLayout {
  int x_at;       // the activations of a product: x_columns of each row, x_stride bytes apart
  int x_columns;  // a multiple of kSlotColumns
  int x_stride;
  int ring_at;
  int num_slots;
  int most_on_way;  // slots that are filled at a time
  // Where there are adapters: see adapters.cuh.
  int lora_at;
  int lora_entries_at;
  int lora_sums_at;
  int lora_added_at;
  int lora_warps_at;
  int lora_a_at;
  int lora_b_at;
  int lora_b_steps;    // of an output
  int lora_b_outputs;  // of a thread
  int bytes;
};

// What lies there, by a pointer that the compiler knows to be to shared memory.
template <typename What>
__device__ __forceinline__ What* in_shared(int at) {
  extern __shared__ __align__(128) unsigned char decoder_step_shared[];
  return reinterpret_cast<What*>(decoder_step_shared + at);
}

// n / divisor for n < 2^16: a multiplication.
class Divider {
 public:
  __device__ explicit Divider(uint32_t divisor)
      : divisor_(divisor), reciprocal_(divisor == 1 ? 0 : 0xffffffffu / divisor + 1) {}
  __device__ __forceinline__ uint32_t divide(uint32_t n) const {
    return divisor_ == 1 ? n : __umulhi(n, reciprocal_);
  }
  __device__ __forceinline__ uint32_t divisor() const { return divisor_; }

 private:
  uint32_t divisor_;
  uint32_t reciprocal_;
};

// A computing thread's view of its block.
struct BlockState {
  int thread;
  int warp;
  int lane;
  int rows;  // of activations
  Divider by_rows;
  Divider by_slots;  // of the ring
  Ring ring;
  SharedLayout layout;
  // The ring's place where the next product or context begins.
  uint32_t slot = 0;
  uint32_t parity = 0;

  __device__ BlockState(int thread, int rows, const Ring& ring, const SharedLayout& layout)
      : thread(thread),
        warp(thread / 32),
        lane(thread % 32),
        rows(rows),
        by_rows(static_cast<uint32_t>(rows)),
        by_slots(ring.num_slots),
        ring(ring),
        layout(layout) {}

  // Partial sums; the attention's scratch.
  static __device__ __forceinline__ float* sums() { return in_shared<float>(kScratchAt); }
  // [kWarps][kMaxRows]
  static __device__ __forceinline__ float* squares() { return in_shared<float>(kSquaresAt); }
  static __device__ __forceinline__ WorkList& work() { return *in_shared<WorkList>(kWorkAt); }
  // The filling warp's, which may be layers ahead.
  static __device__ __forceinline__ UnitList& filler_units() {
    return *in_shared<UnitList>(kFillerUnitsAt);
  }
  static __device__ __forceinline__ BlockShares& shares() {
    return *in_shared<BlockShares>(kSharesAt);
  }
  // This layer's and the next one's.
  static __device__ __forceinline__ CudaDecoderLayer& layer(int i) {
    return in_shared<CudaDecoderLayer>(kLayersAt)[i % 2];
  }

  // For a slot that all warps take.
  __device__ __forceinline__ uint32_t wait_slot() const {
    barrier_wait(ring.full(slot), parity);
    return ring.data(slot);
  }
  __device__ __forceinline__ void release_slot() {
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.empty(slot));
    if (++slot == ring.num_slots) {
      slot = 0;
      parity ^= 1;
    }
  }

  // Of the computing threads.
  __device__ __forceinline__ void synchronize() const { named_barrier_wait(1, kComputeThreads); }
};

}  // namespace quire::ops::cuda::step
