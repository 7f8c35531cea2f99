#pragma once
// What lora_linear takes: a layer's product with what adapters add to it, of a step of few rows.
// ops/cuda/lora_kernels.h says how adapters lie, ops/cuda/kernels.h what holds for all kernels.
#include <cstdint>

#include "base/ceil_div.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora_kernels.h"

namespace quire::ops {

// t of a step of few rows, as lora_linear hands it from its first kernel to its second: in tiles of
// kLoraTileRows rows by kLoraTileRanks columns of dtype, times the part's scale. Of each part a
// slot has `slot_ranks` columns. A row has numbers only in those of its own slot: the others stay
// zero from lora_begin on.
inline constexpr int64_t kLoraTileRows = 64;
inline constexpr int64_t kLoraTileRanks = 64;
inline constexpr int64_t kMostLoraTiles = 32;  // of a part
inline constexpr int64_t kMostLoraTileSlots = 32;
struct CudaLoraTiles {
  void* memory;  // null: there are none
  int32_t num_slots;
  int32_t slot_ranks;          // a multiple of kLoraRankStep
  uint32_t* inputs_are_there;  // of the layer: not zero once its inputs are written
};

inline constexpr int64_t lora_tiles_of_part(int64_t num_slots, int64_t slot_ranks) {
  return ceil_div(num_slots * slot_ranks, kLoraTileRanks);
}
inline constexpr int64_t lora_tiles_bytes(int64_t num_slots, int64_t slot_ranks) {
  constexpr int64_t kElementBytes = 2;
  return kMaxLoraParts * lora_tiles_of_part(num_slots, slot_ranks) * kLoraTileRows *
         kLoraTileRanks * kElementBytes;
}

// Clears what the layers of a step use.
struct CudaLoraBegin {
  void* memory;  // aligned to 16 bytes
  int64_t bytes;
};

// linear with what adapters add to the product, before its bias and activation. All in two kernels,
// the first beside the second, which has the outputs' sums in registers.
struct CudaLoraLinear {
  CudaLinear product;  // of all of the step's rows
  CudaLoraRows rows;
  const CudaLoraLayer* layers;  // without factors and added biases
  int64_t layer_stride;
  int64_t max_ranks;
  int num_parts;
  int64_t first_output[kMaxLoraParts];
  int64_t num_outputs[kMaxLoraParts];
  CudaLoraTiles tiles;  // lora_begin has cleared them in the step, and inputs_are_there
};

// Whether lora_linear can compute a layer of these sizes.
inline bool fits_lora_linear(const CudaLoraLinear& args) {
  const CudaLinear& product = args.product;
  const CudaLoraTiles& tiles = args.tiles;
  const bool is_dense = product.weight.format == product.dtype;
  if (!is_dense || !takes_lora_pairs(product.dtype, product.k) ||
      product.out_dtype != product.dtype || product.rows == 0 || args.rows.max_items == 0 ||
      args.max_ranks == 0 || product.rows > kLoraTileRows || product.rows != args.rows.num_rows ||
      args.rows.first_row != 0 || tiles.memory == nullptr || tiles.num_slots > kMostLoraTileSlots ||
      lora_tiles_of_part(tiles.num_slots, tiles.slot_ranks) > kMostLoraTiles) {
    return false;
  }
  if (product.silu_and_mul) {
    const int64_t inner = product.n / 2;
    return args.num_parts == 2 && args.first_output[0] == 0 && args.first_output[1] == inner &&
           args.num_outputs[0] == inner && args.num_outputs[1] == inner && inner > 0;
  }
  // A tile of outputs is of one part.
  constexpr int64_t kTile = 64;
  for (int part = 0; part < args.num_parts; ++part) {
    const int64_t end = args.first_output[part] + args.num_outputs[part];
    if (args.num_outputs[part] == 0 || args.first_output[part] % kTile != 0 ||
        (end % kTile != 0 && end != product.n)) {
      return false;
    }
  }
  return true;
}

// Whether it is faster than kernels around the product, on an H200: with more ranks these were as
// fast, or faster.
inline constexpr bool gains_by_lora_tiles(int64_t num_slots, int64_t slot_ranks) {
  constexpr int64_t kMostSlotRanks = 16;
  constexpr int64_t kMostRanks = 128;
  return slot_ranks <= kMostSlotRanks && num_slots * slot_ranks <= kMostRanks;
}

// What lora_linear_takes asks besides the device.
inline bool takes_lora_linear(const CudaLoraLinear& args) {
  return fits_lora_linear(args) && gains_by_lora_tiles(args.tiles.num_slots, args.tiles.slot_ranks);
}

}  // namespace quire::ops
