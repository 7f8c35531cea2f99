#pragma once
// A warp's part of a slot of the ring where weights are integers: the products of a panel's 16
// weight rows with rows of activations, by mma.m16n8k32 of integers with the weights as the first
// operand. They lie as that takes them (ops/group_tiles.h), but for int4's two halves of bytes.
//
// Activations are integers, too: 22 bits and a sign, times a power of two that a row's 128 inputs
// of a block have in common, so that the greatest of them keeps all of its bits, and one that is
// 2^14 times smaller those of bfloat16. An integer is three signed bytes; each of these is a column
// of the second operand. Sums of a block are exact, and become float32 when they are scaled.
//
// In shared memory a row of activations is three rows of bytes, the lowest ones first. A block's
// 128 bytes of such a row are two pieces of 64 for two products each; lane i of four has 16 bytes
// of a piece, both registers of the one product and of the other. Behind all rows are the units of
// columns (ColumnUnit), [2 rows][block][8 columns].
#include "ops/cuda/decoder_step/block.cuh"
#include "ops/cuda/linear/group_expand.cuh"
#include "ops/cuda/ptx/mma.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

namespace quire::ops::cuda::step {

inline constexpr int kBlockInputs = static_cast<int>(kTileInputs);
inline constexpr int kColumnsOfRow = 3;
inline constexpr int kRowsOfSet = 2;  // of activations that a product takes: 6 of 8 columns
// Added to the sums of a block so that their bits are a float32, and subtracted from that.
inline constexpr float kIntegerBias = 0x1.8p23f;

// What a column's sums of a block are in units of, and the sum of the block's activations, which is
// 0 but for the column of the lowest bytes.
struct ColumnUnit {
  float unit;
  float sum;
};

constexpr int integer_row_stride(int columns) {
  return columns + 64;
}
// Bytes of all rows of activations.
constexpr int64_t integer_activation_bytes(int64_t rows, int64_t columns) {
  const int64_t sets = (rows + kRowsOfSet - 1) / kRowsOfSet;
  return rows * kColumnsOfRow * integer_row_stride(static_cast<int>(columns)) +
         sets * (columns / kBlockInputs) * 8 * int64_t{sizeof(ColumnUnit)};
}

__device__ __forceinline__ uint32_t column_units_at(const BlockState& block, int set) {
  const int blocks = block.layout.x_columns / kBlockInputs;
  return block.layout.x_at + block.rows * kColumnsOfRow * block.layout.x_stride +
         set * blocks * 8 * static_cast<int>(sizeof(ColumnUnit));
}

// Stores 128 activations of a row from `column` of a part on, by a warp: lane i has those from
// 4 i on.
template <typename W>
__device__ __forceinline__ void store_integers(const BlockState& block, int row, int first_column,
                                               const float (&values)[4]) {
  constexpr uint32_t kAll = 0xffffffffu;
  const int lane = block.lane;
  uint32_t greatest = 0;
#pragma unroll
  for (const float value : values) greatest = max(greatest, __float_as_uint(value) & 0x7fffffffu);
  constexpr uint32_t kLeastExponent = 32;
  constexpr uint32_t kNotFinite = 255;
  const uint32_t exponent = max(__reduce_max_sync(kAll, greatest) >> 23, kLeastExponent);
  const float per_unit = __uint_as_float((275 - exponent) << 23);  // 2^(148 - exponent)
  uint32_t integers[4];
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int integer =
        __float_as_int(fmaf(values[i], per_unit, kIntegerBias)) - __float_as_int(kIntegerBias);
    sum += integer;
    // Each byte of this is a signed digit.
    integers[i] = (static_cast<uint32_t>(integer) + 0x808080) ^ 0x808080;
  }
  sum = __reduce_add_sync(kAll, sum);
  // A register has bytes of two times two neighbours, of which lanes have those of one. Of 4 bits
  // these are of two steps, of 8 bits of the two halves of a step.
  constexpr int kDistance = W::kFourBits ? 4 : 2;
  const bool is_second = (lane & kDistance) != 0;
  const uint32_t other0 = __shfl_xor_sync(kAll, is_second ? integers[0] : integers[2], kDistance);
  const uint32_t other1 = __shfl_xor_sync(kAll, is_second ? integers[1] : integers[3], kDistance);
  const uint32_t first0 = is_second ? other0 : integers[0];
  const uint32_t first1 = is_second ? other1 : integers[1];
  const uint32_t second0 = is_second ? integers[2] : other0;
  const uint32_t second1 = is_second ? integers[3] : other1;
  const int step = lane / 4;
  const int further = lane / 2 % 2;
  const int quarter = lane % 2 * 2 + (is_second ? 1 : 0);
  const int product = step / 2;
  const int reg = W::kFourBits ? further : step % 2;
  const int at = block.layout.x_at + row * kColumnsOfRow * block.layout.x_stride + first_column +
                 product / 2 * 64 + quarter * 16 + product % 2 * 8 + reg * 4;
#pragma unroll
  for (int i = 0; i < kColumnsOfRow; ++i) {
    const uint32_t low = __byte_perm(first0, second0, i | (4 + i) << 4);
    const uint32_t high = __byte_perm(first1, second1, i | (4 + i) << 4);
    *in_shared<uint32_t>(at + i * block.layout.x_stride) = __byte_perm(low, high, 0x5410);
  }
  if (lane >= kColumnsOfRow) return;
  const float unit =
      exponent == kNotFinite ? __uint_as_float(0x7fffffff) : __uint_as_float((exponent - 21) << 23);
  const int unit_at = static_cast<int>(column_units_at(block, row / kRowsOfSet)) +
                      (first_column / kBlockInputs * 8 + row % kRowsOfSet * kColumnsOfRow + lane) *
                          static_cast<int>(sizeof(ColumnUnit));
  *in_shared<ColumnUnit>(unit_at) = {unit * static_cast<float>(1 << (8 * lane)),
                                     lane == 0 ? unit * static_cast<float>(sum) : 0.0f};
}

// This warp's blocks of slots.
template <typename W>
class IntegerSlots {
 public:
  // Of weight rows lane / 4 and that + 8 with columns 2 (lane % 4) and the next, in the order of an
  // accumulator.
  struct Sums {
    float of[4];
  };

  __device__ __forceinline__ explicit IntegerSlots(const BlockState& block)
      : block_(block), part_(block.warp % W::kWarpsPerSlot) {}

  __device__ __forceinline__ int num_sets() const {
    return (block_.rows + kRowsOfSet - 1) / kRowsOfSet;
  }

  // Of a slot that begins at column `x` of the activations' part and has so many columns.
  __device__ __forceinline__ Sums multiply(uint32_t slot, uint32_t x, int columns, int,
                                           int set) const {
    const int lane = block_.lane;
    const uint32_t blocks = static_cast<uint32_t>(columns) / uint32_t{kTileInputs};
    const uint32_t first = blocks * part_ / W::kWarpsPerSlot;
    const uint32_t count = blocks * (part_ + 1) / W::kWarpsPerSlot - first;
    const uint32_t start = shared_address(in_shared<unsigned char>(0));
    const int column = lane / 4;
    const uint32_t x_block = x / kBlockInputs + first;
    const Places places = {
        slot + first * W::kBlockBytes + 16 * lane,
        slot + first * W::kBlockBytes + W::kDataBytes + lane / 4 * int{sizeof(float)},
        start + block_.layout.x_at +
            (set * kRowsOfSet * kColumnsOfRow + column) * block_.layout.x_stride +
            x_block * kBlockInputs + lane % 4 * 16,
        start + column_units_at(block_, set) + x_block * 8 * uint32_t{sizeof(ColumnUnit)} +
            lane % 4 * 2 * uint32_t{sizeof(ColumnUnit)}};
    const bool has_column = column < kRowsOfSet * kColumnsOfRow &&
                            set * kRowsOfSet + column / kColumnsOfRow < block_.rows;
    Sums total = {};
    Operands operands[2] = {};  // activations stay zero where there is no such column
    // Without a branch between them, loads and products overlap best.
    if (count == kMostBlocks) {
      load(places, has_column, 0, operands[0]);
#pragma unroll
      for (uint32_t i = 0; i < kMostBlocks; ++i) {
        if (i + 1 < kMostBlocks) load(places, has_column, i + 1, operands[(i + 1) % 2]);
        add(operands[i % 2], total);
      }
    } else {
#pragma unroll 1
      for (uint32_t i = 0; i < count; ++i) {
        load(places, has_column, i, operands[0]);
        add(operands[0], total);
      }
    }
    return total;
  }

  // The sums of a set of rows to where partial sums of a panel begin; `adds`: to what this warp has
  // stored there.
  __device__ __forceinline__ static void store(const BlockState& block, const Sums& sums, float* to,
                                               int set, bool adds) {
    const int quarter = block.lane % 4;
    const int row = set * kRowsOfSet + quarter / 2;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const float* const of = sums.of + 2 * upper;
      // Of the second lane the first column is the first row's last one, and the other the next
      // row's first.
      const int second = block.lane - quarter + 1;
      const float last = __shfl_sync(0xffffffffu, of[0], second);
      const float first = __shfl_sync(0xffffffffu, of[1], second);
      const float sum = (of[0] + of[1]) + (quarter == 0 ? last : first);
      if (quarter % 2 == 0 && row < block.rows) {
        float& place = to[row * W::kUnitRows + 8 * upper + block.lane / 4];
        place = adds ? place + sum : sum;
      }
    }
  }

 private:
  static constexpr int kProducts = kBlockInputs / 32;
  static constexpr int kChunks = W::kDataBytes / (32 * 16);  // of 16 bytes a lane
  static constexpr uint32_t kMostBlocks = W::kSlotBlocks / W::kWarpsPerSlot;

  // Where this lane's parts of its first block lie.
  struct Places {
    uint32_t weights;
    uint32_t scales;
    uint32_t x;
    uint32_t units;
  };
  struct Operands {
    uint4 weights[kChunks];
    uint4 x[kProducts / 2];
    float units[4];  // of two columns
    float scales[2];
    float shifts[2];
  };

  __device__ __forceinline__ static void load(const Places& places, bool has_column, uint32_t i,
                                              Operands& operands) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      operands.weights[chunk] = load_chunk(places.weights + i * W::kBlockBytes + chunk * (32 * 16));
    }
#pragma unroll
    for (int pair = 0; pair < kProducts / 2; ++pair) {
      load_chunk_if(has_column, operands.x[pair], places.x + i * kBlockInputs + pair * 64);
    }
    load_floats(places.units + i * 8 * uint32_t{sizeof(ColumnUnit)}, operands.units);
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const uint32_t at = places.scales + i * W::kBlockBytes + upper * 8 * int{sizeof(float)};
      operands.scales[upper] = load_float(at);
      if constexpr (W::kShifts) operands.shifts[upper] = load_float(at + W::kScalesBytes);
    }
  }

  // A number is scale * (byte - excess + shift): what is added to bytes is multiplied by the sum of
  // the block's activations.
  __device__ __forceinline__ static void add(const Operands& operands, Sums& total) {
    int32_t sums[4];
#pragma unroll
    for (int32_t& sum : sums) sum = __float_as_int(kIntegerBias);
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
      uint32_t a[4];
      if constexpr (W::kFourBits) {
        const uint4& words = operands.weights[i / 2];
        const uint32_t low = i % 2 == 0 ? words.x : words.z;
        const uint32_t high = i % 2 == 0 ? words.y : words.w;
        a[0] = low & 0x0f0f0f0f;
        a[1] = high & 0x0f0f0f0f;
        a[2] = low >> 4 & 0x0f0f0f0f;
        a[3] = high >> 4 & 0x0f0f0f0f;
      } else {
        const uint4& words = operands.weights[i];
        a[0] = words.x;
        a[1] = words.y;
        a[2] = words.z;
        a[3] = words.w;
      }
      const uint4& x = operands.x[i / 2];
      multiply_add_bytes(sums, a, i % 2 == 0 ? x.x : x.z, i % 2 == 0 ? x.y : x.w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      constexpr float kExcess = W::kFourBits ? 8.0f : 128.0f;
      const float added = W::kShifts ? operands.shifts[i / 2] - kExcess : -kExcess;
      const float sum = operands.units[i % 2 * 2] * (__int_as_float(sums[i]) - kIntegerBias);
      total.of[i] += operands.scales[i / 2] * (added * operands.units[i % 2 * 2 + 1] + sum);
    }
  }

  const BlockState& block_;
  uint32_t part_;
};

}  // namespace quire::ops::cuda::step
