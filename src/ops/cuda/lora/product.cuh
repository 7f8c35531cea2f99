#pragma once
// What the adapters of a step add to a tile of skinny_product (ops/cuda/linear/skinny_kernel.cuh):
// t B^T, with t from its tiles through the stages, behind the product's own, and B from memory to
// the registers of the warps that have its outputs. Device code, only for sm_90a.
//
// What a step has is looked up while the kernels before may still run, and the first numbers of B
// are then on their way, too. Of each warp lane s knows slot s, and lane i the part's i-th tile.
#include <cstdint>

#include "core/launch.cuh"
#include "ops/cuda/linear/skinny_kernel.cuh"
#include "ops/cuda/linear/stages.cuh"
#include "ops/cuda/lora/tiles.cuh"
#include "ops/cuda/lora_product_kernels.h"
#include "ops/cuda/ptx/barriers.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"
#include "ops/cuda/ptx/tma.cuh"
#include "ops/cuda/ptx/warpgroup.cuh"

namespace quire::ops::cuda {

struct AdditionArgs {
  const LoraItem* items;
  const int32_t* num_items;
  int max_items;
  const CudaLoraLayer* layers;
  int64_t layer_stride;
  CudaLoraTiles tiles;
  int num_parts;
  int first_output[kMaxLoraParts];
  int num_outputs[kMaxLoraParts];
};

// Until the activations are there, as lora_shrink says, which is the kernel before and still
// computes t. Tensor copies read them from the L2 cache, where they are complete.
__device__ __forceinline__ void wait_for_lora_inputs(const uint32_t* are_there) {
  uint32_t word = 0;
  do {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(are_there) : "memory");
  } while (word == 0);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// kGated: the first half of a tile's columns are outputs of the gate, part 0, and the other half
// the same ones of part 1. Each half is a side, which has tiles of t of its own.
template <typename T, bool kGated>
class AdapterAddition {
 public:
  static constexpr bool kAny = true;

  __device__ explicit AdapterAddition(const AdditionArgs& args) : args_(args) {}

  template <int kTileColumns>
  __device__ void look_up(const SkinnyArgs& product, int first_column, uint32_t note) {
    constexpr int kSideColumns = kTileColumns / kSides;
    constexpr int kWarpColumns = 16;
    const int warp_column = static_cast<int>(threadIdx.x) / 32 * kWarpColumns;
    side_ = warp_column / kSideColumns;
    const int first_part = part_of(first_column);
    const int part = first_part + side_;
    output_ = first_column - (kGated ? 0 : args_.first_output[part]) + warp_column % kSideColumns +
              lane() / 4;
    num_outputs_ = output_ < 0 ? 0 : args_.num_outputs[part];
    int ranks[kSides] = {};
    look_up_slot(first_part, ranks);
    look_up_tiles(ranks, product.log2_splits);
    if (threadIdx.x < 32) {
      if (lane() == 0) store_word(note, tiles_);
      named_barrier_arrive(kNoteBarrier, kNoteThreads);
    }
    first_ = load(tiles_);
    prefetch(tiles_ & (tiles_ - 1));
  }

  __device__ void wait_for_inputs() const { wait_for_lora_inputs(args_.tiles.inputs_are_there); }
  __device__ int num_fillings() const { return num_tiles_; }

  template <typename Ring>
  __device__ void fetch(const Ring& ring, int first_column, int num_blocks, uint32_t note) const {
    constexpr uint32_t kBytes = Ring::kRows * kLoraTileRowBytes;
    __syncwarp();
    named_barrier_wait(kNoteBarrier, kNoteThreads);
    wait_for_previous();
    if (lane() != 0) return;
    const int first_part = part_of(first_column);
    int filling = num_blocks;
    for (uint32_t rest = __float_as_uint(load_float(note)); rest != 0;
         rest &= rest - 1, ++filling) {
      const int stage = filling % ring.num_stages;
      if (filling >= ring.num_stages) {
        wait_for_stage(ring.emptied(stage), (filling / ring.num_stages - 1) & 1);
      }
      barrier_arrive_expecting(ring.filled(stage), kSides * kBytes);
#pragma unroll
      for (int side = 0; side < kSides; ++side) {
        copy_bulk(place_of_side(ring, stage, side),
                  lora_tile(args_.tiles, first_part + side, __ffs(rest) - 1), kBytes,
                  ring.filled(stage));
      }
    }
  }

  // d += the products, by the warps that have its outputs.
  template <typename Ring, int kSums>
  __device__ void multiply(float (&d)[kSums], const Ring& ring, uint32_t release, int num_blocks,
                           StageCursor cursor) const {
    const int num_all = num_blocks + num_tiles_;
    TileOperands b = first_;
    uint32_t rest = tiles_;
    for (int filling = num_blocks; filling < num_all; ++filling) {
      rest &= rest - 1;
      const TileOperands next = load(rest);
      wait_for_stage(ring.filled(cursor.stage), cursor.parity);
      multiply_tile(d, ring, cursor.stage, b);
      if (filling + ring.num_stages < num_all && release != 0) {
        barrier_arrive_in_cluster(release + Ring::kBarrierStep * cursor.stage);
      }
      cursor.advance(ring.num_stages);
      b = next;
    }
  }

 private:
  static constexpr int kSides = kGated ? 2 : 1;
  // Where the producer hears which tiles there are, from the first of the other warps.
  static constexpr int kNoteBarrier = 2;
  static constexpr int kNoteThreads = 64;
  static constexpr int kSteps = static_cast<int>(kLoraTileRanks) / kLoraRankStep;  // of a tile

  // The lane's numbers of B for a tile of t, of its two outputs: operands of wgmma.
  struct TileOperands {
    uint32_t at[kSteps][4];
  };
  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }

  template <typename Ring>
  static __device__ __forceinline__ uint32_t place_of_side(const Ring& ring, int stage, int side) {
    return side == 0 ? ring.in(stage) : ring.weights(stage);
  }

  // Of the first side.
  __device__ int part_of(int column) const {
    if (kGated) return 0;
    int found = 0;
    for (int part = 0; part < args_.num_parts; ++part) {
      const int in_part = column - args_.first_output[part];
      if (in_part >= 0 && in_part < args_.num_outputs[part]) found = part;
    }
    return found;
  }

  // Ranks of the lane's slot of each side's part, none where the step does not have it; and B.
  __device__ void look_up_slot(int first_part, int (&ranks)[kSides]) {
    const int num_items = *args_.num_items;
    uint32_t slots = 0;
    for (int i = lane(); i < args_.max_items; i += 32) {
      const int slot = args_.items[i].slot;
      if (i < num_items && slot >= 0) slots |= 1u << slot;
    }
    slots = __reduce_or_sync(~0u, slots);
    if ((slots >> lane() & 1) == 0) return;
    const CudaLoraLayer& layer = args_.layers[lane() * args_.layer_stride];
#pragma unroll
    for (int side = 0; side < kSides; ++side) {
      ranks[side] = layer.rank[first_part + side];
      if (side == side_) ranks_ = ranks[side];
    }
    b_ = static_cast<const T*>(layer.b[first_part + side_]);
  }

  // The tiles that the step's adapters have ranks in, of any side; of a cluster's blocks each takes
  // its turn.
  __device__ void look_up_tiles(const int (&ranks)[kSides], int log2_splits) {
    bool is_used = false;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const SlotRank at = slot_rank(lane(), step);
#pragma unroll
      for (int side = 0; side < kSides; ++side) {
        const int end = __shfl_sync(~0u, ranks[side], at.slot & 31);
        is_used |= at.slot < args_.tiles.num_slots && at.rank < end;
      }
    }
    const uint32_t used = __ballot_sync(~0u, is_used);
    const int before = __popc(used & ((1u << lane()) - 1));
    const bool is_own = (before & ((1 << log2_splits) - 1)) == static_cast<int>(blockIdx.x);
    tiles_ = __shfl_sync(~0u, used & __ballot_sync(~0u, is_own), 0);
    num_tiles_ = __shfl_sync(~0u, __popc(tiles_), 0);
  }

  // Which slot's ranks the tile has in its step-th 16 columns, and the first of them.
  struct SlotRank {
    int slot;
    int rank;
  };
  __device__ __forceinline__ SlotRank slot_rank(int tile, int step) const {
    const int column = tile * static_cast<int>(kLoraTileRanks) + step * kLoraRankStep;
    const int slot = column / args_.tiles.slot_ranks;
    return {slot, column - slot * args_.tiles.slot_ranks};
  }

  // Calls body(step, half, from) for the lane's numbers of B for the first tile in `tiles`, if the
  // step has such ranks and the part such outputs.
  template <typename Body>
  __device__ __forceinline__ void for_each_place(uint32_t tiles, const Body& body) const {
    if (tiles == 0) return;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const SlotRank at = slot_rank(__ffs(tiles) - 1, step);
      const int slot = at.slot & 31;
      const auto* b =
          reinterpret_cast<const T*>(__shfl_sync(~0u, reinterpret_cast<uintptr_t>(b_), slot));
      const int ranks = __shfl_sync(~0u, ranks_, slot);
      if (at.slot >= args_.tiles.num_slots || at.rank >= ranks) continue;
      b += int64_t{output_} * ranks + at.rank + 4 * (lane() % 4);
      if (output_ < num_outputs_) body(step, 0, b);
      if (output_ + 8 < num_outputs_) body(step, 1, b + int64_t{8} * ranks);
    }
  }
  // Zeros where there is nothing.
  __device__ __forceinline__ TileOperands load(uint32_t tiles) const {
    TileOperands b = {};
    for_each_place(tiles, [&](int step, int half, const T* from) {
      const uint2 numbers = *reinterpret_cast<const uint2*>(from);
      b.at[step][half] = numbers.x;
      b.at[step][2 + half] = numbers.y;
    });
    return b;
  }
  __device__ void prefetch(uint32_t tiles) const {
    for (; tiles != 0; tiles &= tiles - 1) {
      for_each_place(tiles, [](int, int, const T* from) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
      });
    }
  }

  // d += operand * t^T. There is no wgmma_rows of 32 rows.
  template <int kSums>
  static __device__ __forceinline__ void multiply_rows(float (&d)[kSums],
                                                       const uint32_t (&operand)[4], uint64_t t) {
    if constexpr (kSums == 16) {
      constexpr uint64_t kHalf = 16 * kLoraTileRowBytes >> 4;
      wgmma_rows<T, 16>(reinterpret_cast<float(&)[8]>(d[0]), operand, t, 1);
      wgmma_rows<T, 16>(reinterpret_cast<float(&)[8]>(d[8]), operand, t + kHalf, 1);
    } else {
      wgmma_rows<T, 2 * kSums>(d, operand, t, 1);
    }
  }

  // Columns of t that no rank has are multiplied by zeros. They are numbers all the same.
  template <typename Ring, int kSums>
  __device__ __forceinline__ void multiply_tile(float (&d)[kSums], const Ring& ring, int stage,
                                                const TileOperands& b) const {
    uint32_t operands[kSides][kSteps][4];
#pragma unroll
    for (int side = 0; side < kSides; ++side) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          operands[side][step][i] = !kGated || side == side_ ? b.at[step][i] : 0;
        }
        pin(operands[side][step]);
      }
    }
    pin(d);
    wgmma_fence();
#pragma unroll
    for (int side = 0; side < kSides; ++side) {
      const uint64_t t = tile_descriptor(place_of_side(ring, stage, side));
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        multiply_rows(d, operands[side][step], t + step * kDescriptorStep);
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
    pin(d);
  }

  const AdditionArgs& args_;
  int side_ = 0;    // of the warp's outputs
  int output_ = 0;  // the lane's first of the part; its other is 8 further
  int num_outputs_ = 0;
  const T* b_ = nullptr;  // of the lane's slot and the warp's part
  int ranks_ = 0;
  int num_tiles_ = 0;
  uint32_t tiles_ = 0;       // a bit for each tile of the block
  TileOperands first_ = {};  // of the first tile
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace quire::ops::cuda
