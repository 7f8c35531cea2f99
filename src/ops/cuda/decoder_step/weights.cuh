#pragma once
// The formats of matrices that the decoder step's kernel takes. Its code is a template on one of
// these classes, `W`: what differs is how weights lie in a slot of the ring, and how sums of
// products become outputs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "ops/group_tiles.h"
#include "ops/weight_format.h"

namespace quire::ops::cuda::step {

// That compute.
inline constexpr int kWarps = 8;
// A slot of the ring holds 8 rows of a dense or float8 matrix, so many bytes of each, padded.
inline constexpr int kGroupRows = 8;
inline constexpr int kSlotDataBytes = 2048;
inline constexpr int kSlotRowBytes = kSlotDataBytes + 64;

// The numbers themselves, in the type of activations.
template <typename T>
struct DenseWeights {
  using Activation = T;
  static constexpr int kBytes = 2;         // of a weight
  static constexpr int kWarpsPerSlot = 2;  // that compute a slot together, each some of its columns
  static constexpr int kUnitRows = kGroupRows;  // weight rows of a slot
  static constexpr int kSlotColumns = kSlotDataBytes / kBytes;
  static constexpr int kSlotBytes = kGroupRows * kSlotRowBytes;
  static constexpr bool kIsFloat8 = false;
  static constexpr bool kIsInteger = false;
  static constexpr bool kHasOutputScales = false;
  static constexpr bool kHasBlockScales = false;
  static constexpr bool kReadsAhead = false;
};

// Float8 e4m3, and a scale for each output or for each block of 128 x 128. A slot has twice the
// columns, which take twice the arithmetic: more warps share it.
template <typename T, bool kBlocks>
struct Float8Weights {
  using Activation = T;
  static constexpr int kBytes = 1;
  static constexpr int kWarpsPerSlot = 4;
  static constexpr int kUnitRows = kGroupRows;
  static constexpr int kSlotColumns = kSlotDataBytes / kBytes;
  static constexpr int kSlotBytes = kGroupRows * kSlotRowBytes;
  static constexpr bool kIsFloat8 = true;
  static constexpr bool kIsInteger = false;
  static constexpr bool kHasOutputScales = !kBlocks;
  static constexpr bool kHasBlockScales = kBlocks;
  static constexpr bool kReadsAhead = false;
};

// Integers in groups of 128 inputs or of a row, as ops/group_tiles.h has them: a slot is some
// blocks of a panel, one behind the other.
template <typename T, bool kIsFourBits, bool kHasZeroPoints>
struct IntegerWeights {
  using Activation = T;
  static constexpr bool kFourBits = kIsFourBits;
  static constexpr bool kShifts = kHasZeroPoints;
  static constexpr GroupTiles kLayout = {.four_bits = kFourBits, .has_shifts = kShifts};
  static constexpr int kDataBytes = static_cast<int>(kLayout.data_bytes());
  static constexpr int kScalesBytes = static_cast<int>(kLayout.scales_bytes());
  static constexpr int kBlockBytes = static_cast<int>(kLayout.block_bytes());
  static constexpr int kWarpsPerSlot = 4;
  static constexpr int kUnitRows = static_cast<int>(kTileOutputs);
  static constexpr int kSlotBlocks = kFourBits ? 16 : 8;
  static constexpr int kSlotColumns = kSlotBlocks * static_cast<int>(kTileInputs);
  static constexpr int kSlotBytes = std::max(kSlotBlocks * kBlockBytes, kGroupRows* kSlotRowBytes);
  static constexpr bool kIsFloat8 = false;
  static constexpr bool kIsInteger = true;
  static constexpr bool kHasOutputScales = false;  // beside the weights
  static constexpr bool kHasBlockScales = false;
  static constexpr bool kReadsAhead = false;
};

// Any of them, in the kernel that has activations on their way while it computes (activations.cuh).
template <typename W>
struct ReadAhead : W {
  static constexpr bool kReadsAhead = true;
};

// spread_e4m3() of ptx/convert.cuh leaves weights as T that are too small by a power of two.
// Activations take a part of that, so that products stay far from the smallest numbers, and sums
// the rest.
template <typename T>
struct Float8Factors;
template <>
struct Float8Factors<__nv_bfloat16> {
  static constexpr float kActivation = 0x1p60f;
  static constexpr float kSum = 0x1p60f;
};
template <>
struct Float8Factors<__half> {
  static constexpr float kActivation = 1.0f;
  static constexpr float kSum = 0x1p8f;
};

template <typename W>
inline constexpr int kSlotColumns = W::kSlotColumns;
template <typename W>
inline constexpr int kSlotsAtOnce = kWarps / W::kWarpsPerSlot;
// A group's slots come to the same warps every so many column slots, a power of two, where
// `slots_at_once` slots, one as well, are computed at a time: the sums of these are added up first.
constexpr int sum_columns_of(int groups, int slots_at_once) {
  int columns = slots_at_once;
  for (; columns > 1 && groups % 2 == 0; columns /= 2) groups /= 2;
  return columns;
}
// Blocks have whole multiples of so many features of a product: an exchanged word has two, a panel
// of integers is in one piece.
template <typename W>
inline constexpr int kShareFeatures = W::kIsInteger ? W::kUnitRows : 2;

// Scales of blocks come with their weights: those of a slot's row, behind it.
inline constexpr int kSlotScaleBytes = kSlotDataBytes / kFloat8Block * int{sizeof(float)};

}  // namespace quire::ops::cuda::step
