#pragma once
// The formats of matrices that the decoder step's kernel takes. Its code is a template on one of
// these classes, `W`: what differs is how weights lie in a slot of the ring, and how sums of
// products become outputs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/weight_format.h"

namespace quire::ops::cuda::step {

// That compute.
inline constexpr int kWarps = 8;
// Of a weight row in a slot of the ring.
inline constexpr int kSlotDataBytes = 2048;

// The numbers themselves, in the type of activations.
template <typename T>
struct DenseWeights {
  using Activation = T;
  static constexpr int kBytes = 2;         // of a weight
  static constexpr int kWarpsPerSlot = 2;  // that compute a slot together, each some of its columns
  static constexpr bool kIsFloat8 = false;
  static constexpr bool kHasOutputScales = false;
  static constexpr bool kHasBlockScales = false;
};

// Float8 e4m3, and a scale for each output or for each block of 128 x 128. A slot has twice the
// columns, which take twice the arithmetic: more warps share it.
template <typename T, bool kBlocks>
struct Float8Weights {
  using Activation = T;
  static constexpr int kBytes = 1;
  static constexpr int kWarpsPerSlot = 4;
  static constexpr bool kIsFloat8 = true;
  static constexpr bool kHasOutputScales = !kBlocks;
  static constexpr bool kHasBlockScales = kBlocks;
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
inline constexpr int kSlotColumns = kSlotDataBytes / W::kBytes;
template <typename W>
inline constexpr int kSlotsAtOnce = kWarps / W::kWarpsPerSlot;

// Scales of blocks come with their weights: those of a slot's row, behind it.
inline constexpr int kSlotScaleBytes = kSlotDataBytes / kFloat8Block * int{sizeof(float)};

}  // namespace quire::ops::cuda::step
