#pragma once
// How weights and cached keys and values reach the decoder step's kernel: a ring of slots in shared
// memory, filled by one warp with bulk copies and emptied by the others. None of these depend on
// what the step computes, so the filling warp runs ahead through all products and all contexts of
// all layers, as far as the ring is long, whatever the others wait for: device memory is never
// idle.
//
// A slot holds 8 rows of up to 2048 bytes of a matrix, or 64 tokens' keys or values of a head, 8
// tokens a row. Its rows are padded by 64 bytes: two rows that a quarter of a warp reads together
// (64 bytes each) then lie in different banks. Scales of blocks fill the padding. Of integers a
// slot holds blocks of a panel (weights.cuh) as they are.
#include <cstdint>

#include "ops/cuda/decoder_step/weights.cuh"
#include "ops/cuda/ptx/barriers.cuh"
#include "ops/cuda/ptx/tma.cuh"

namespace quire::ops::cuda::step {

// One more warp fills the ring.
inline constexpr int kComputeThreads = 32 * kWarps;
inline constexpr int kThreads = kComputeThreads + 32;

inline constexpr int kMaxSlots = 16;
static_assert(kSlotDataBytes + kSlotScaleBytes <= kSlotRowBytes);

// The rows of a matrix [n, k] that a block computes, in groups of W::kUnitRows. `second_half` 0:
// the rows are [begin, end). Else, for a gated product, also those that are second_half further on:
// every second group is of these.
struct Share {
  int k;
  int begin;
  int end;
  int second_half;
  int sum_columns = 0;  // sum_columns_of() its groups

  __device__ bool gated() const { return second_half > 0; }
  template <typename W>
  __device__ int num_groups() const {
    const int groups = (end - begin + W::kUnitRows - 1) / W::kUnitRows;
    return gated() ? 2 * groups : groups;
  }
  template <typename W>
  __device__ int num_column_slots() const {
    return (k + kSlotColumns<W> - 1) / kSlotColumns<W>;
  }
  template <typename W>
  __device__ int columns_of(int column_slot) const {
    return min(kSlotColumns<W>, k - column_slot * kSlotColumns<W>);
  }
  template <typename W>
  __device__ int first_row(int group) const {
    return gated() ? begin + W::kUnitRows * (group / 2) + group % 2 * second_half
                   : begin + W::kUnitRows * group;
  }
  template <typename W>
  __device__ int num_rows(int group) const {
    return min(W::kUnitRows, end - begin - W::kUnitRows * (gated() ? group / 2 : group));
  }
};

// A block's shares of a layer's matrices, each by half of the layer: attention, MLP.
struct BlockShares {
  Share normed[2];     // qkv, gate and up
  Share projected[2];  // o, down
};

// Of rows from `first_row` on, the first one that is of another row of blocks than it.
__device__ __forceinline__ int second_block_row(int first_row) {
  return int{kFloat8Block} - first_row % int{kFloat8Block};
}

inline constexpr int kRingBarrierBytes = 16 * kMaxSlots;

// Where the ring is, and how long.
struct Ring {
  uint32_t slots;
  uint32_t barriers;
  uint32_t num_slots;
  uint32_t slot_bytes;
  uint32_t most_on_way;  // slots, at most num_slots

  __device__ uint32_t data(uint32_t slot) const { return slots + slot * slot_bytes; }
  __device__ uint32_t full(uint32_t slot) const { return barriers + 16 * slot; }
  __device__ uint32_t empty(uint32_t slot) const { return barriers + 16 * slot + 8; }
};

__device__ __forceinline__ void init_ring(const Ring& ring) {
  for (uint32_t i = 0; i < ring.num_slots; ++i) {
    barrier_init(ring.full(i), 1);
    barrier_init(ring.empty(i), kWarps);
  }
  fence_barrier_init();
}

// The filling warp's side.
class Filler {
 public:
  __device__ Filler(Ring ring, int lane)
      : ring_(ring), lane_(lane), policy_(evict_first_policy()) {}

  // Brings memory into the L2 cache that is read outside of the ring.
  __device__ void prefetch(const void* from, uint32_t bytes) const { prefetch_bulk(from, bytes); }
  __device__ int lane() const { return lane_; }

  // In the order in which multiply_slots() of product.cuh reads: by columns, then by
  // groups. `scales`: of float8 in blocks.
  template <typename W>
  __device__ void stream(const void* weight, const float* scales, const Share& share) {
    if constexpr (W::kIsInteger) {
      stream_integers<W>(static_cast<const char*>(weight), share);
    } else {
      stream_rows<W>(weight, scales, share);
    }
  }

  // What a slot has in the padding of its first row, and of the first one of another row of blocks.
  struct Scales {
    const float* from;  // of this lane's row
    int bytes;          // 0: nothing
    int second_row;
    int count;  // of such rows
  };

  // Rows [first, last) of the next slot: each lane has the place of its own row.
  __device__ void fill(const char* from, int first, int last, int bytes, Scales scales = {}) {
    await_slot((last - first) * bytes + scales.count * scales.bytes);
    if (lane_ >= first && lane_ < last) {
      const uint32_t to = ring_.data(slot_) + lane_ * kSlotRowBytes;
      copy_bulk(to, from, static_cast<uint32_t>(bytes), ring_.full(slot_), policy_);
      if (scales.bytes > 0 && (lane_ == 0 || lane_ == scales.second_row)) {
        copy_bulk(to + kSlotDataBytes, scales.from, static_cast<uint32_t>(scales.bytes),
                  ring_.full(slot_));
      }
    }
    next_slot();
  }

 private:
  template <typename W>
  __device__ void stream_rows(const void* weight, const float* scales, const Share& share) {
    const int64_t stride = W::kBytes * static_cast<int64_t>(share.k);
    const int num_groups = share.num_groups<W>();
#pragma unroll 1
    for (int at = 0; at < share.num_column_slots<W>(); ++at) {
      const char* from = static_cast<const char*>(weight) + kSlotDataBytes * at;
      const int bytes = W::kBytes * share.columns_of<W>(at);
#pragma unroll 1
      for (int group = 0; group < num_groups; ++group) {
        const int row = share.first_row<W>(group);
        const int num_rows = share.num_rows<W>(group);
        Scales of_row = {};
        if constexpr (W::kHasBlockScales) {
          const int block_row = (row + lane_) / int{kFloat8Block};
          of_row.from = scales + block_row * (share.k / int{kFloat8Block}) +
                        at * (kSlotColumns<W> / int{kFloat8Block});
          of_row.bytes = bytes / int{kFloat8Block} * int{sizeof(float)};
          of_row.second_row = second_block_row(row);
          of_row.count = of_row.second_row < num_rows ? 2 : 1;
        }
        fill(from + row * stride + lane_ * stride, 0, num_rows, bytes, of_row);
      }
    }
  }

  template <typename W>
  __device__ void stream_integers(const char* weight, const Share& share) {
    const int num_groups = share.num_groups<W>();
    const int64_t panel_bytes = int64_t{share.k / static_cast<int>(kTileInputs)} * W::kBlockBytes;
#pragma unroll 1
    for (int at = 0; at < share.num_column_slots<W>(); ++at) {
      const int blocks = share.columns_of<W>(at) / static_cast<int>(kTileInputs);
      const char* from = weight + at * (W::kSlotBlocks * W::kBlockBytes);
#pragma unroll 1
      for (int group = 0; group < num_groups; ++group) {
        const int panel = share.first_row<W>(group) / W::kUnitRows;
        fill_whole(from + panel * panel_bytes, blocks * W::kBlockBytes);
      }
    }
  }

  // The next slot, of memory in one piece.
  __device__ void fill_whole(const char* from, int bytes) {
    await_slot(bytes);
    if (lane_ == 0) {
      copy_bulk(ring_.data(slot_), from, static_cast<uint32_t>(bytes), ring_.full(slot_), policy_);
    }
    next_slot();
  }

  // Waits until the slot is empty, and few enough others are on their way; so many bytes come to
  // it.
  __device__ void await_slot(int bytes) const {
    const bool wraps = slot_ < ring_.most_on_way;
    const uint32_t before = slot_ + (wraps ? ring_.num_slots : 0) - ring_.most_on_way;
    barrier_wait(ring_.full(before), wraps ? parity_ ^ 1 : parity_);
    barrier_wait(ring_.empty(slot_), parity_ ^ 1);
    if (lane_ == 0) barrier_arrive_expecting(ring_.full(slot_), static_cast<uint32_t>(bytes));
    __syncwarp();
  }
  __device__ void next_slot() {
    if (++slot_ == ring_.num_slots) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }

  Ring ring_;
  int lane_;
  uint32_t slot_ = 0;
  uint32_t parity_ = 0;
  // A weight is read once a step: it should not push activations and the cache out of the L2.
  uint64_t policy_;
};

}  // namespace quire::ops::cuda::step
