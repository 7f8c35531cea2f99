#pragma once
// Where numbers of t lie in CudaLoraTiles. Device code.
//
// A tile's rows are 128 bytes in the swizzle of warpgroup.cuh, so that one copy brings the first
// rows of a tile to where wgmma multiplies them. 16 ranks, which it multiplies at a time, are in
// the order in which a lane that has four neighbouring ones of B has them in its registers (the
// first operand of multiply_add() in mma.cuh): lane l % 4 = q has 4 q to 4 q + 3, as the operand's
// columns 2 q, 2 q + 1, 2 q + 8 and 2 q + 9.
#include <cstdint>

#include "ops/cuda/lora_product_kernels.h"

namespace quire::ops::cuda {

inline constexpr int kLoraTileRowBytes = 128;
inline constexpr int64_t kLoraTileBytes = kLoraTileRows * kLoraTileRowBytes;

__device__ __forceinline__ char* lora_tile(const CudaLoraTiles& tiles, int part, int tile) {
  const int64_t tiles_of_part = lora_tiles_of_part(tiles.num_slots, tiles.slot_ranks);
  return static_cast<char*>(tiles.memory) + (part * tiles_of_part + tile) * kLoraTileBytes;
}

// The number of a slot's `rank` of a part.
template <typename T>
__device__ __forceinline__ T* lora_tile_number(const CudaLoraTiles& tiles, int part, int slot,
                                               int rank, int row) {
  constexpr int kPieceNumbers = 8;
  const int column = slot * tiles.slot_ranks + rank;
  const int in_step = column % kLoraRankStep;
  const int in_lane = in_step % 4;
  const int operand_column = in_step / 4 * 2 + in_lane % 2 + in_lane / 2 * kPieceNumbers;
  const int in_tile = column % static_cast<int>(kLoraTileRanks);
  const int piece = (in_tile - in_step + operand_column) / kPieceNumbers;
  char* const at = lora_tile(tiles, part, column / static_cast<int>(kLoraTileRanks)) +
                   row * kLoraTileRowBytes + ((piece ^ (row % 8)) << 4);
  return reinterpret_cast<T*>(at) + operand_column % kPieceNumbers;
}

}  // namespace quire::ops::cuda
