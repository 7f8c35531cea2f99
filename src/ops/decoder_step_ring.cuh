#pragma once
// How weights reach the decoder step's kernel: a ring of slots in shared memory, filled by one warp
// with bulk copies and emptied by the others. Weights depend on nothing, so the filling warp runs
// ahead through all products of all layers, as far as the ring is long, whatever the others wait
// for: device memory is never idle.
//
// A slot holds 8 rows of up to 1024 columns of a matrix, or the weights of a norm. Its rows are
// padded by 64 bytes: two rows that a quarter of a warp reads together (64 bytes each) then lie in
// different banks.
#include <cstdint>

#include "ops/hopper.cuh"

namespace quire::ops::cuda::step {

// That compute; one more fills the ring.
inline constexpr int kWarps = 8;
inline constexpr int kComputeThreads = 32 * kWarps;
inline constexpr int kThreads = kComputeThreads + 32;

inline constexpr int kSlotColumns = 1024;
inline constexpr int kGroupRows = 8;
inline constexpr int kSlotRowBytes = 2 * kSlotColumns + 64;
inline constexpr int kSlotBytes = kGroupRows * kSlotRowBytes;
inline constexpr int kNumSlots = 12;

// The rows of a matrix [n, k] that a block computes: tiles of 16 rows, as the matrix units take
// them, in two groups of 8. `second_half` 0: the rows are [begin, end). Else a tile is 8 of these
// and the 8 rows that are second_half further on, the two halves of a gated product.
struct Share {
  int k;
  int begin;
  int end;
  int second_half;

  __device__ int rows_per_tile() const { return second_half > 0 ? kGroupRows : 2 * kGroupRows; }
  __device__ int num_tiles() const {
    return second_half > 0 ? (end - begin + kGroupRows - 1) / kGroupRows
                           : (end - begin + 2 * kGroupRows - 1) / (2 * kGroupRows);
  }
  __device__ int num_column_slots() const { return (k + kSlotColumns - 1) / kSlotColumns; }
  __device__ int columns_of(int column_slot) const {
    return min(kSlotColumns, k - column_slot * kSlotColumns);
  }
  __device__ int first_row(int tile, int group) const {
    return second_half > 0 ? begin + kGroupRows * tile + group * second_half
                           : begin + kGroupRows * (2 * tile + group);
  }
  __device__ int num_rows(int tile, int group) const {
    const int before = second_half > 0 ? kGroupRows * tile : kGroupRows * (2 * tile + group);
    return max(0, min(kGroupRows, end - begin - before));
  }
};

// A block's shares of a layer's matrices, each by half of the layer: attention, MLP.
struct BlockShares {
  Share normed[2];     // qkv, gate and up
  Share projected[2];  // o, down
};

inline constexpr int kRingBarrierBytes = 16 * kNumSlots;

// A place in the ring, advanced alike by the filling warp and by each of the others.
class Ring {
 public:
  __device__ Ring(uint32_t slots, uint32_t barriers)
      : slots_(slots), barriers_(barriers), data_(slots), full_(barriers) {}

  __device__ uint32_t data() const { return data_; }
  __device__ uint32_t full() const { return full_; }
  __device__ uint32_t empty() const { return full_ + 8; }
  __device__ void wait_full() const { hopper::wait(full(), parity_); }
  __device__ void wait_empty() const { hopper::wait(empty(), parity_ ^ 1); }
  __device__ void advance() {
    data_ += kSlotBytes;
    full_ += 16;
    if (full_ == barriers_ + kRingBarrierBytes) {
      data_ = slots_;
      full_ = barriers_;
      parity_ ^= 1;
    }
  }
  // By all lanes of a computing warp, once they have read the slot.
  __device__ void release(int lane) {
    __syncwarp();
    if (lane == 0) hopper::arrive(empty());
    advance();
  }

 private:
  uint32_t slots_;
  uint32_t barriers_;
  uint32_t data_;
  uint32_t full_;
  uint32_t parity_ = 0;
};

__device__ __forceinline__ void init_ring(uint32_t barriers) {
  for (int i = 0; i < kNumSlots; ++i) {
    hopper::init_barrier(barriers + 16 * i, 1);
    hopper::init_barrier(barriers + 16 * i + 8, kWarps);
  }
  hopper::fence_barrier_init();
}

__device__ __forceinline__ void copy_bulk(uint32_t destination, const void* source, uint32_t bytes,
                                          uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(destination),
      "l"(source), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// The filling warp's side.
class Filler {
 public:
  __device__ Filler(Ring ring, int lane) : ring_(ring), lane_(lane) {
    // A weight is read once a step: it should not push activations and the cache out of the L2.
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy_));
  }

  // Brings memory into the L2 cache that is read outside of the ring.
  __device__ void prefetch(const void* from, uint32_t bytes) const {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
  }
  __device__ int lane() const { return lane_; }

  __device__ void norm(const float* weight, int n) { fill(weight, 1, 0, 4 * n); }

  // In the order in which tiles_by_row() and tiles_by_column() of decoder_step_product.cuh read.
  __device__ void tiles_by_row(const void* weight, const Share& share) {
#pragma unroll 1
    for (int tile = 0; tile < share.num_tiles(); ++tile) {
#pragma unroll 1
      for (int at = 0; at < share.num_column_slots(); ++at) this->tile(weight, share, tile, at);
    }
  }
  __device__ void tiles_by_column(const void* weight, const Share& share) {
#pragma unroll 1
    for (int at = 0; at < share.num_column_slots(); ++at) {
#pragma unroll 1
      for (int tile = 0; tile < share.num_tiles(); ++tile) this->tile(weight, share, tile, at);
    }
  }

 private:
  __device__ void tile(const void* weight, const Share& share, int tile, int column_slot) {
    const int64_t stride = 2 * static_cast<int64_t>(share.k);
#pragma unroll 1
    for (int group = 0; group < 2; ++group) {
      const int rows = share.num_rows(tile, group);
      if (rows == 0) continue;
      const char* from = static_cast<const char*>(weight) + share.first_row(tile, group) * stride +
                         2 * kSlotColumns * column_slot;
      fill(from, rows, stride, 2 * share.columns_of(column_slot));
    }
  }

  __device__ void fill(const void* from, int rows, int64_t stride, int bytes) {
    ring_.wait_empty();
    if (lane_ == 0) hopper::arrive_expecting(ring_.full(), static_cast<uint32_t>(rows * bytes));
    __syncwarp();
    if (lane_ < rows) {
      copy_bulk(ring_.data() + lane_ * kSlotRowBytes,
                static_cast<const char*>(from) + lane_ * stride, static_cast<uint32_t>(bytes),
                ring_.full(), policy_);
    }
    ring_.advance();
  }

  Ring ring_;
  int lane_;
  uint64_t policy_;
};

}  // namespace quire::ops::cuda::step
