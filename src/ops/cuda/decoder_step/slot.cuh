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
//
// Integers, of which a slot has 16 weight rows, are in integer_slot.cuh.
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

// Of the products of 8 weight rows, what a lane has: of activation row lane / 4, weight rows
// 2 (lane % 4) and the next. To where partial sums of a group of rows begin; `adds`: to what this
// warp has stored there.
__device__ __forceinline__ void store_sums(const BlockState& block, float2 sums, float* to,
                                           bool adds) {
  const int row = block.lane / 4;
  if (row >= block.rows) return;
  auto* const place = reinterpret_cast<float2*>(to + row * kGroupRows + 2 * (block.lane % 4));
  if (adds) {
    const float2 before = *place;
    sums = make_float2(before.x + sums.x, before.y + sums.y);
  }
  *place = sums;
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

// Float8 weights: this warp's blocks of 128 columns of slots.
template <typename W>
class Float8Slots {
 public:
  using T = typename W::Activation;

  __device__ __forceinline__ explicit Float8Slots(const BlockState& block)
      : has_row_(block.lane / 4 < block.rows),
        part_(block.warp % W::kWarpsPerSlot),
        weights_at_(block.lane / 4 * kSlotRowBytes + 16 * (block.lane % 4)),
        x_at_(block.lane / 4 * block.layout.x_stride + 16 * (block.lane % 4)),
        row_(2 * (block.lane % 4)) {}

  // Of a slot with so many columns, of weight rows from `first_row` on.
  __device__ __forceinline__ float2 multiply(uint32_t slot, uint32_t x, int columns, int first_row,
                                             int) {
    const uint32_t blocks = static_cast<uint32_t>(columns) / uint32_t{kFloat8Block};
    const uint32_t first = blocks * part_ / W::kWarpsPerSlot;
    const uint32_t count = blocks * (part_ + 1) / W::kWarpsPerSlot - first;
    // Both of a lane's results are of one row of blocks: shares begin at even features.
    const int second = second_block_row(first_row);
    const uint32_t scales = slot + kSlotDataBytes + (row_ >= second ? second * kSlotRowBytes : 0);
    Places places = {slot + weights_at_ + first * uint32_t{kFloat8Block},
                     x + x_at_ + first * 2 * uint32_t{kFloat8Block},
                     scales + first * uint32_t{sizeof(float)}};
#pragma unroll
    for (auto& sum : sums_) sum[0] = sum[1] = sum[2] = sum[3] = 0;
    total_ = make_float2(0, 0);
    Operands operands[2] = {};  // activations stay zero where there is no such row
    const auto add_pairs = [&](uint32_t end) {
      load(places, 0, operands[0]);
#pragma unroll kUnrolledPairs
      for (uint32_t i = 0; i < end; i += 2) {
        load(places, i + 1, operands[1]);
        add(places, i, operands[0]);
        if (i + 2 < end) load(places, i + 2, operands[0]);
        add(places, i + 1, operands[1]);
      }
    };
    // Without a branch between them, loads and products overlap best.
    if (count == kMostBlocks) {
      add_pairs(kMostBlocks);
    } else if (count == 2) {
      add_pairs(2);
    } else {
#pragma unroll 1
      for (uint32_t i = 0; i < count; ++i) {
        load(places, i, operands[0]);
        add(places, i, operands[0]);
      }
    }
    if constexpr (!W::kHasBlockScales) add_sums(1.0f);
    return total_;
  }

  __device__ __forceinline__ static constexpr int num_sets() {
    return 1;
  }
  __device__ __forceinline__ static void store(const BlockState& block, float2 sums, float* to, int,
                                               bool adds) {
    store_sums(block, sums, to, adds);
  }

 private:
  static constexpr int kRuns = kFloat8Block / kFloat8RunColumns;
  static constexpr int kChains = 4;  // of products that do not wait for each other
  static constexpr uint32_t kMostBlocks =
      kSlotColumns<W> / uint32_t{kFloat8Block} / W::kWarpsPerSlot;
  static_assert(kMostBlocks == 4);
  // Registers are short where sums have scales.
  static constexpr int kUnrolledPairs = W::kHasBlockScales ? 1 : 2;

  struct Operands {
    uint4 weights[kRuns];
    uint4 x[kRuns][2];
  };

  // Where a lane's words and the scale of the warp's first block lie.
  struct Places {
    uint32_t weights;
    uint32_t x;
    uint32_t scale;
  };

  __device__ __forceinline__ void load(const Places& places, uint32_t i, Operands& operands) const {
#pragma unroll
    for (uint32_t run = 0; run < kRuns; ++run) {
      const uint32_t column = i * uint32_t{kFloat8Block} + run * kFloat8RunColumns;
      operands.weights[run] = load_chunk(places.weights + column);
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        load_chunk_if(has_row_, operands.x[run][half], places.x + 2 * column + 64 * half);
      }
    }
  }

  __device__ __forceinline__ void add(const Places& places, uint32_t i, const Operands& operands) {
    float scale = 1.0f;
    if constexpr (W::kHasBlockScales) {
      scale = load_float(places.scale + i * uint32_t{sizeof(float)});
#pragma unroll
      for (auto& sum : sums_) sum[0] = sum[1] = sum[2] = sum[3] = 0;
    }
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const uint4& w = operands.weights[run];
      const uint32_t fours[kChains] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
        const uint4& x = operands.x[run][chain / 2];
        const uint2 pairs = spread_e4m3<T>(fours[chain]);
        multiply_add<T>(sums_[chain], {x.x, x.y, x.z, x.w}, pairs.x, pairs.y);
      }
    }
    if constexpr (W::kHasBlockScales) add_sums(scale);
  }

  __device__ __forceinline__ void add_sums(float scale) {
    total_.x += scale * ((sums_[0][0] + sums_[1][2]) + (sums_[2][0] + sums_[3][2]));
    total_.y += scale * ((sums_[0][1] + sums_[1][3]) + (sums_[2][1] + sums_[3][3]));
  }

  bool has_row_;
  uint32_t part_;
  uint32_t weights_at_;
  uint32_t x_at_;
  int row_;  // of the slot's, the first that this lane has results of
  float sums_[kChains][4] = {};
  float2 total_ = {0, 0};
};

template <typename T>
class DenseSlots {
 public:
  __device__ __forceinline__ explicit DenseSlots(const BlockState& block) : block_(block) {}

  __device__ __forceinline__ float2 multiply(uint32_t slot, uint32_t x, int columns, int,
                                             int) const {
    return multiply_dense_slot<T>(block_, slot, x, columns);
  }
  __device__ __forceinline__ static constexpr int num_sets() { return 1; }
  __device__ __forceinline__ static void store(const BlockState& block, float2 sums, float* to, int,
                                               bool adds) {
    store_sums(block, sums, to, adds);
  }

 private:
  const BlockState& block_;
};

}  // namespace quire::ops::cuda::step
