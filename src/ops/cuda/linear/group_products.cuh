#pragma once
// A stage of the product of integer weights: 128 inputs, of which a warp has a panel's outputs.
// Tensor cores multiply the integers themselves, which 16 bits hold exactly; the sums of a group,
// in float32, are multiplied by its scales. Device code, only for sm_90a.
#include "ops/cuda/linear/group_expand.cuh"
#include "ops/cuda/ptx/mma.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"
#include "ops/cuda/ptx/warpgroup.cuh"
#include "ops/group_tiles.h"

namespace quire::ops::cuda {

inline constexpr int kGroupSteps = static_cast<int>(kTileInputs) / 16;
inline constexpr int kPanel = static_cast<int>(kTileOutputs);
// Tiles of so many rows of activations, at most, are multiplied by warps, those of more by
// warpgroups.
inline constexpr int kFewTileRows = 16;

// What the integers are.
template <typename Element, bool kIsFourBits, bool kHasShifts, int kGroupsOfBlock>
struct GroupKind {
  using T = Element;
  static constexpr bool kFourBits = kIsFourBits;
  static constexpr bool kShifts = kHasShifts;
  static constexpr int kGroups = kGroupsOfBlock;
  static constexpr GroupTiles kLayout = {
      .groups = kGroups, .four_bits = kFourBits, .has_shifts = kShifts};
  static constexpr int kDataBytes = static_cast<int>(kLayout.data_bytes());
  static constexpr int kBlockBytes = static_cast<int>(kLayout.block_bytes());
};

// Whether sums are in units of a group's scales, so that products add up in place. A thread's sums
// of 128 rows leave no registers for products of their own; with fewer rows those are faster.
constexpr bool rescales_sums(int tile_rows) {
  return tile_rows > 64;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A warp's panel of a stage of weights.
template <typename Kind>
struct StagePanel {
  using T = typename Kind::T;
  uint32_t data;    // of this lane
  uint32_t scales;  // of this lane's first output

  __device__ StagePanel(uint32_t stage) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const uint32_t panel = stage + warp * Kind::kBlockBytes;
    data = panel + lane * 16;
    scales = panel + Kind::kDataBytes + lane / 4 * 4;
  }
  __device__ float scale(int group, bool upper) const {
    return load_float(scales + (group * kPanel + (upper ? 8 : 0)) * 4);
  }
  __device__ ElementPair<T> shift(int group, bool upper) const {
    constexpr int kScalesBytes = static_cast<int>(Kind::kLayout.scales_bytes());
    const float value = load_float(scales + kScalesBytes + (group * kPanel + (upper ? 8 : 0)) * 4);
    if constexpr (kIsBFloat16<T>) {
      return __float2bfloat162_rn(value);
    } else {
      return __float2half2_rn(value);
    }
  }
};

// Adds the shifts of outputs `row` and `row` + 8.
template <typename T>
__device__ __forceinline__ void add_shifts(const ElementPair<T> (&shifts)[2], StepOperand& step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    step.a[i] = bits_of_pair<T>(__hadd2(pair_of_bits<T>(step.a[i]), shifts[i % 2]));
  }
}

// Steps 4 * half to 4 * half + 3 of a block.
template <typename Kind>
__device__ __forceinline__ void expand_half(const StagePanel<Kind>& panel, int half,
                                            StepOperand (&steps)[4]) {
  using T = typename Kind::T;
  constexpr int kWordsBytes = 32 * 16;
  if constexpr (Kind::kFourBits) {
    expand_four_bits<T>(load_chunk(panel.data + half * kWordsBytes), steps);
  } else {
    expand_eight_bits<T>(load_chunk(panel.data + 2 * half * kWordsBytes), steps);
    expand_eight_bits<T>(load_chunk(panel.data + (2 * half + 1) * kWordsBytes), steps + 2);
  }
  if constexpr (Kind::kShifts) {
    constexpr int kGroupsOfHalf = Kind::kGroups == 1 ? 1 : Kind::kGroups / 2;
#pragma unroll
    for (int i = 0; i < kGroupsOfHalf; ++i) {
      const int group = Kind::kGroups == 1 ? 0 : half * kGroupsOfHalf + i;
      const ElementPair<T> shifts[2] = {panel.shift(group, false), panel.shift(group, true)};
#pragma unroll
      for (int step = i * 4 / kGroupsOfHalf; step < (i + 1) * 4 / kGroupsOfHalf; ++step) {
        add_shifts<T>(shifts, steps[step]);
      }
    }
  }
}

// sums += products of a group, scaled.
template <int kTileRows>
__device__ __forceinline__ void add_group(const float (&products)[kTileRows / 2], float low,
                                          float high, float (&sums)[kTileRows / 2]) {
#pragma unroll
  for (int i = 0; i < kTileRows / 2; ++i) sums[i] += products[i] * (i % 4 < 2 ? low : high);
}

// A stage by warpgroups: kGroups groups of steps, each with products of its own.
template <typename Kind, int kTileRows>
__device__ __forceinline__ void multiply_stage(const StagePanel<Kind>& panel, uint32_t in,
                                               int box_bytes, float (&sums)[kTileRows / 2]) {
  using T = typename Kind::T;
  constexpr int kStepsOfGroup = kGroupSteps / Kind::kGroups;
  float products[kTileRows / 2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    StepOperand steps[4];
    expand_half(panel, half, steps);
    const uint64_t b = tile_descriptor(in + half * box_bytes);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int in_group = (4 * half + step) % kStepsOfGroup;
      if (step == 0 || in_group == 0) {
        pin(products);
        wgmma_fence();
      }
      wgmma_rows<T, kTileRows>(products, steps[step].a, b + step * kDescriptorStep, in_group > 0);
      if (in_group == kStepsOfGroup - 1) {
        const int group = (4 * half + step) / kStepsOfGroup;
        wgmma_commit();
        const float low = panel.scale(group, false);
        const float high = panel.scale(group, true);
        wgmma_wait<0>();
        pin(products);
        add_group<kTileRows>(products, low, high, sums);
      } else if (step == 3) {
        wgmma_commit();
      }
    }
  }
}

// A group's scales of outputs `row` and `row` + 8, as numbers that can be divided by: a group whose
// scale is zero counts as nothing beside others.
struct GroupScales {
  float low;
  float high;
};
template <typename Kind>
__device__ __forceinline__ GroupScales load_scales(const StagePanel<Kind>& panel, int group) {
  constexpr float kLeast = 1e-20f;
  const float low = panel.scale(group, false);
  const float high = panel.scale(group, true);
  return {fabsf(low) < kLeast ? kLeast : low, fabsf(high) < kLeast ? kLeast : high};
}

template <int kCount>
__device__ __forceinline__ void scale_sums(float (&sums)[kCount], float low, float high) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] *= i % 4 < 2 ? low : high;
}

// A stage where sums are rescaled: they are in units of `scales` before, and of its last group's
// scales afterwards, which `scales` becomes. wait_for_in() returns where the activations are.
template <typename Kind, int kTileRows, typename Wait>
__device__ __forceinline__ void multiply_rescaled(const StagePanel<Kind>& panel,
                                                  const Wait& wait_for_in, int box_bytes,
                                                  GroupScales& scales,
                                                  float (&sums)[kTileRows / 2]) {
  using T = typename Kind::T;
  constexpr int kStepsOfGroup = kGroupSteps / Kind::kGroups;
  StepOperand halves[2][4];
  expand_half(panel, 0, halves[0]);
  const uint32_t in = wait_for_in();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 1) expand_half(panel, 1, halves[1]);
    const uint64_t b = tile_descriptor(in + half * box_bytes);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int step = 4 * half + i;
      const bool begins_group = step % kStepsOfGroup == 0;
      if (begins_group) {
        if (step > 0) wgmma_wait<0>();
        pin(sums);
        const GroupScales next = load_scales(panel, step / kStepsOfGroup);
        scale_sums(sums, __fdividef(scales.low, next.low), __fdividef(scales.high, next.high));
        scales = next;
      }
      if (begins_group || i == 0) {
        pin(sums);
        wgmma_fence();
      }
      wgmma_rows<T, kTileRows>(sums, halves[half][i].a, b + i * kDescriptorStep, 1);
      if (i == 3 || (step + 1) % kStepsOfGroup == 0) wgmma_commit();
    }
  }
  wgmma_wait<0>();
  pin(sums);
}

// A stage of few rows, with products of each warp by itself: while one warp waits for its sums,
// others expand.
template <typename Kind, int kTileRows>
__device__ __forceinline__ void multiply_few(const StagePanel<Kind>& panel, uint32_t in,
                                             int box_bytes, float (&sums)[kTileRows / 2]) {
  using T = typename Kind::T;
  constexpr int kOctets = kTileRows / 8;
  constexpr int kStepsOfGroup = kGroupSteps / Kind::kGroups;
  constexpr int kChains = kOctets == 1 ? 2 : 1;  // of products that do not wait for each other
  // A row has 128 bytes of a box, whose words of 16 bytes are swizzled by its number.
  const int lane = threadIdx.x % 32;
  const uint32_t row_at = in + lane % 8 * 128;
  const uint32_t word_at = ((lane / 8) ^ (lane % 8)) * 16;
  float products[kOctets][kChains][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    StepOperand steps[4];
    expand_half<Kind>(panel, half, steps);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      uint32_t b[kOctets][4];
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) {
        load_matrices(b[octet], row_at + half * box_bytes + octet * 1024 + (word_at ^ (pair * 64)));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int step = 2 * pair + i;
        const int in_group = (4 * half + step) % kStepsOfGroup;
#pragma unroll
        for (int octet = 0; octet < kOctets; ++octet) {
          float(&chain)[4] = products[octet][step % kChains];
          if (in_group < kChains) chain[0] = chain[1] = chain[2] = chain[3] = 0;
          multiply_add<T>(chain, steps[step].a, b[octet][2 * i], b[octet][2 * i + 1]);
        }
        if (in_group < kStepsOfGroup - 1) continue;
        const int group = (4 * half + step) / kStepsOfGroup;
        const float scales[2] = {panel.scale(group, false), panel.scale(group, true)};
#pragma unroll
        for (int octet = 0; octet < kOctets; ++octet) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            float sum = products[octet][0][j];
            if constexpr (kChains == 2) sum += products[octet][kChains - 1][j];
            sums[4 * octet + j] += scales[j / 2] * sum;
          }
        }
      }
    }
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace quire::ops::cuda
