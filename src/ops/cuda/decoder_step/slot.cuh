#pragma once
// A warp's part of a slot of the ring: the products of 8 weight rows with up to 8 rows of
// activations in shared memory, by mma.m16n8k16 with the weights as the second operand, so that any
// number of activation rows costs what one does.
//
// An 8 x 8 piece of the products takes 8 of the first operand's 16 rows. Two products share it:
// four registers hold activations for both, of which the first product has its result in the upper
// 8 rows and the second in the lower. The words of 16 bytes of activations, of 8 columns, are such
// registers:
//
//   dense    pairs 0, 2, 1, 3 of the 8 columns. A lane's word of weights is the same 8 columns:
//            pairs 0 and 1 are the first product's operand, 2 and 3 the second's
//   float8   of each 4 columns the first and the third are a pair, the second and the fourth
//            another (spread_e4m3()). The words hold the first pairs of the first and the second 4
//            columns, then the second pairs. A lane's word of weights is 16 columns, two words of
//            activations; those are 64 bytes apart, so that lanes read from different banks
#include "ops/cuda/decoder_step/block.cuh"
#include "ops/cuda/ptx/convert.cuh"
#include "ops/cuda/ptx/mma.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

namespace quire::ops::cuda::step {

// Of dense weights, that a warp takes in a step: 64 bytes of each row.
inline constexpr int kRunColumns = 32;
// Of float8, the same.
inline constexpr int kFloat8RunColumns = 64;

// Four activations as the two pairs that shared memory has of them.
template <typename W>
__device__ __forceinline__ uint2 activations_of(float4 four) {
  using T = typename W::Activation;
  if constexpr (W::kIsFloat8) {
    constexpr float kFactor = Float8Factors<T>::kActivation;
    return make_uint2(pair_of<T>(four.x * kFactor, four.z * kFactor),
                      pair_of<T>(four.y * kFactor, four.w * kFactor));
  } else {
    return make_uint2(pair_of<T>(four.x, four.y), pair_of<T>(four.z, four.w));
  }
}
// The same, of pairs of neighbours.
template <typename W>
__device__ __forceinline__ uint2 activations_of(uint2 pairs) {
  if constexpr (W::kIsFloat8) {
    pairs =
        make_uint2(__byte_perm(pairs.x, pairs.y, 0x5410), __byte_perm(pairs.x, pairs.y, 0x7632));
    if constexpr (std::is_same_v<typename W::Activation, __nv_bfloat16>) {
      constexpr uint32_t kFactor = 0x5d805d80;  // 2^60
      static_assert(Float8Factors<__nv_bfloat16>::kActivation == 0x1p60f);
      pairs = make_uint2(multiply_bfloat16(pairs.x, kFactor), multiply_bfloat16(pairs.y, kFactor));
    }
  }
  return pairs;
}

// Where four activations lie, from `column` of a part of a row on: the first pair here, the second
// two words further on.
template <typename W>
__device__ __forceinline__ uint32_t* place_of_four(int row_at, uint32_t column) {
  int word_at = column / 8 * 16;
  if constexpr (W::kIsFloat8) {
    word_at = column / kFloat8RunColumns * (2 * kFloat8RunColumns) + column % 16 / 8 * 64 +
              column % kFloat8RunColumns / 16 * 16;
  }
  return in_shared<uint32_t>(row_at + word_at) + column / 4 % 2;
}

// Dense weights: this warp's half of a slot.
template <typename T>
__device__ __forceinline__ float2 multiply_dense_slot(const BlockState& block, uint32_t weights,
                                                      uint32_t x, int columns) {
  constexpr int kUnrolled = 4;
  using W = DenseWeights<T>;
  constexpr int kHalfRuns = kSlotColumns<W> / kRunColumns / W::kWarpsPerSlot;
  const int half = block.warp % W::kWarpsPerSlot;
  const int row = block.lane / 4;
  const int first = half * kHalfRuns;
  const int last = min(first + kHalfRuns, columns / kRunColumns);
  const uint32_t piece = 16 * (block.lane % 4);
  const uint32_t w_at = weights + row * kSlotRowBytes + piece;
  const uint32_t x_at = x + row * block.layout.x_stride + piece;
  const bool has_row = row < block.rows;
  float sums[2 * kUnrolled][4] = {};  // chains of products of their own
  const auto add = [&](int run, int chain) {
    const uint4 w = load_chunk(w_at + run * 2 * kRunColumns);
    const uint4 a = has_row ? load_chunk(x_at + run * 2 * kRunColumns) : make_uint4(0, 0, 0, 0);
    multiply_add<T>(sums[2 * chain], {a.x, a.y, a.z, a.w}, w.x, w.y);
    multiply_add<T>(sums[2 * chain + 1], {a.x, a.y, a.z, a.w}, w.z, w.w);
  };
  int run = first;
#pragma unroll 1
  for (; run + kUnrolled <= last; run += kUnrolled) {
#pragma unroll
    for (int i = 0; i < kUnrolled; ++i) add(run + i, i);
  }
#pragma unroll 1
  for (; run < last; ++run) add(run, 0);
  float2 total = make_float2(0, 0);
#pragma unroll
  for (int i = 0; i < kUnrolled; ++i) {
    total.x += sums[2 * i][0] + sums[2 * i + 1][2];
    total.y += sums[2 * i][1] + sums[2 * i + 1][3];
  }
  return total;
}

// Float8 weights: this warp's blocks of 128 columns of a slot.
template <typename W>
__device__ __forceinline__ float2 multiply_float8_slot(const BlockState& block, uint32_t weights,
                                                       uint32_t x, int columns) {
  using T = typename W::Activation;
  constexpr int kRuns = kFloat8Block / kFloat8RunColumns;
  struct Operands {
    uint4 weights[kRuns];
    uint4 x[kRuns][2];
    float scale;
  };
  const int part = block.warp % W::kWarpsPerSlot;
  const int num_blocks = columns / int{kFloat8Block};
  const int first = num_blocks * part / W::kWarpsPerSlot;
  const int last = num_blocks * (part + 1) / W::kWarpsPerSlot;
  const int row = block.lane / 4;
  const uint32_t piece = 16 * (block.lane % 4);
  const uint32_t w_at = weights + row * kSlotRowBytes + piece;
  const uint32_t x_at = x + row * block.layout.x_stride + piece;
  // Both of a lane's results are of one row of blocks: shares begin at even features.
  const uint32_t scale_at = weights + 2 * (block.lane % 4) * kSlotRowBytes + kSlotDataBytes;
  const bool has_row = row < block.rows;
  const auto load = [&](int at) {
    Operands operands;
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const int column = at * int{kFloat8Block} + run * kFloat8RunColumns;
      operands.weights[run] = load_chunk(w_at + column);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        operands.x[run][i] =
            has_row ? load_chunk(x_at + 2 * column + 64 * i) : make_uint4(0, 0, 0, 0);
      }
    }
    if constexpr (W::kHasBlockScales) operands.scale = load_float(scale_at + sizeof(float) * at);
    return operands;
  };
  float2 total = make_float2(0, 0);
  float sums[4][4] = {};  // chains of products of their own
  const auto add_sums = [&](float scale) {
    total.x += scale * ((sums[0][0] + sums[1][2]) + (sums[2][0] + sums[3][2]));
    total.y += scale * ((sums[0][1] + sums[1][3]) + (sums[2][1] + sums[3][3]));
  };
#pragma unroll 2
  for (int at = first; at < last; ++at) {
    const Operands operands = load(at);
    if constexpr (W::kHasBlockScales) {
#pragma unroll
      for (auto& chain : sums) chain[0] = chain[1] = chain[2] = chain[3] = 0;
    }
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const uint4& w = operands.weights[run];
      const uint32_t fours[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint4& a = operands.x[run][i / 2];
        const uint2 spread = spread_e4m3<T>(fours[i]);
        multiply_add<T>(sums[i], {a.x, a.y, a.z, a.w}, spread.x, spread.y);
      }
    }
    if constexpr (W::kHasBlockScales) add_sums(operands.scale);
  }
  if constexpr (!W::kHasBlockScales) add_sums(1.0f);
  return total;
}

// The sums of activation row lane / 4 with weight rows 2 (lane % 4) and the next, of this warp's
// columns of a slot; but for scales of outputs.
template <typename W>
__device__ __forceinline__ float2 multiply_slot(const BlockState& block, uint32_t weights,
                                                uint32_t x, int columns) {
  if constexpr (W::kIsFloat8) {
    return multiply_float8_slot<W>(block, weights, x, columns);
  } else {
    return multiply_dense_slot<typename W::Activation>(block, weights, x, columns);
  }
}

}  // namespace quire::ops::cuda::step
