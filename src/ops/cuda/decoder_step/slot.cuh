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
//   dense    of 8 columns, pairs 0, 2, 1, 3. A lane's word of weights is the same 8 columns: pairs
//            0 and 1 are the first product's operand, 2 and 3 the second's
//   float8   the same, with the first 4 columns for the first product. A lane's word of weights is
//            16 columns, for two words of activations; those are 64 bytes apart, so that lanes
//            read from different banks
#include "ops/cuda/decoder_step/block.cuh"
#include "ops/cuda/ptx/convert.cuh"
#include "ops/cuda/ptx/mma.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

namespace quire::ops::cuda::step {

// Of dense weights, that a warp takes in a step: 64 bytes of each row.
inline constexpr int kRunColumns = 32;
// Of float8, the same.
inline constexpr int kFloat8RunColumns = 64;

// A pair of activations as shared memory has it.
template <typename W>
__device__ __forceinline__ uint32_t activations_of(float first, float second) {
  using T = typename W::Activation;
  if constexpr (W::kIsFloat8) {
    constexpr float kFactor = Float8Factors<T>::kActivation;
    return pair_of<T>(first * kFactor, second * kFactor);
  } else {
    return pair_of<T>(first, second);
  }
}
template <typename W>
__device__ __forceinline__ uint32_t activations_of(uint32_t pair) {
  if constexpr (W::kIsFloat8 && std::is_same_v<typename W::Activation, __nv_bfloat16>) {
    static_assert(Float8Factors<__nv_bfloat16>::kActivation == 0x1p60f);
    return multiply_bfloat16(pair, 0x5d805d80);  // 2^60
  } else {
    return pair;
  }
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
class Float8Slot {
 public:
  using T = typename W::Activation;

  __device__ __forceinline__ Float8Slot(const BlockState& block, uint32_t weights, uint32_t x)
      : has_row_(block.lane / 4 < block.rows),
        weights_(weights + block.lane / 4 * kSlotRowBytes + 16 * (block.lane % 4)),
        x_(x + block.lane / 4 * block.layout.x_stride + 16 * (block.lane % 4)),
        // Both of a lane's results are of one row of blocks: shares begin at even features.
        scales_(weights + 2 * (block.lane % 4) * kSlotRowBytes + kSlotDataBytes) {}

  // Of blocks [first, last). The operands of the next block are on their way while one's products
  // are computed.
  __device__ __forceinline__ float2 multiply(uint32_t first, uint32_t last) {
    Operands even = {};
    Operands odd = {};
    weights_ += first * kFloat8Block;
    x_ += first * 2 * kFloat8Block;
    scales_ += first * sizeof(float);
    int left = static_cast<int>(last - first);
    if (left > 0) load(even);
#pragma unroll 1
    for (; left > 0; left -= 2) {
      if (left > 1) load(odd);
      add(even);
      if (left == 1) break;
      if (left > 2) load(even);
      add(odd);
    }
    if constexpr (!W::kHasBlockScales) add_sums(1.0f);
    return total_;
  }

 private:
  static constexpr int kRuns = kFloat8Block / kFloat8RunColumns;
  static constexpr int kChains = 4;  // of products that do not wait for each other

  struct Operands {
    uint4 weights[kRuns];
    uint4 x[kRuns][2];  // zero where there is no such row
    float scale;
  };

  // The next block's.
  __device__ __forceinline__ void load(Operands& operands) {
#pragma unroll
    for (uint32_t run = 0; run < kRuns; ++run) {
      operands.weights[run] = load_chunk(weights_ + run * kFloat8RunColumns);
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        load_chunk_if(has_row_, operands.x[run][i], x_ + run * 2 * kFloat8RunColumns + 64 * i);
      }
    }
    if constexpr (W::kHasBlockScales) operands.scale = load_float(scales_);
    weights_ += kFloat8Block;
    x_ += 2 * kFloat8Block;
    scales_ += sizeof(float);
  }

  __device__ __forceinline__ void add(const Operands& operands) {
    if constexpr (W::kHasBlockScales) {
#pragma unroll
      for (auto& sum : sums_) sum[0] = sum[1] = sum[2] = sum[3] = 0;
    }
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const uint4& w = operands.weights[run];
      const uint32_t fours[kChains] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < kChains; ++i) {
        const uint4& x = operands.x[run][i / 2];
        const uint2 pairs = spread_e4m3<T>(fours[i]);
        multiply_add<T>(sums_[i], {x.x, x.y, x.z, x.w}, pairs.x, pairs.y);
      }
    }
    if constexpr (W::kHasBlockScales) add_sums(operands.scale);
  }

  __device__ __forceinline__ void add_sums(float scale) {
    total_.x += scale * ((sums_[0][0] + sums_[1][2]) + (sums_[2][0] + sums_[3][2]));
    total_.y += scale * ((sums_[0][1] + sums_[1][3]) + (sums_[2][1] + sums_[3][3]));
  }

  bool has_row_;
  uint32_t weights_;
  uint32_t x_;
  uint32_t scales_;
  float sums_[kChains][4] = {};
  float2 total_ = {0, 0};
};

// The sums of activation row lane / 4 with weight rows 2 (lane % 4) and the next, of this warp's
// columns of a slot; but for scales of outputs.
template <typename W>
__device__ __forceinline__ float2 multiply_slot(const BlockState& block, uint32_t weights,
                                                uint32_t x, int columns) {
  if constexpr (W::kIsFloat8) {
    const uint32_t part = block.warp % W::kWarpsPerSlot;
    const uint32_t blocks = columns / int{kFloat8Block};
    return Float8Slot<W>(block, weights, x)
        .multiply(blocks * part / W::kWarpsPerSlot, blocks * (part + 1) / W::kWarpsPerSlot);
  } else {
    return multiply_dense_slot<typename W::Activation>(block, weights, x, columns);
  }
}

}  // namespace quire::ops::cuda::step
