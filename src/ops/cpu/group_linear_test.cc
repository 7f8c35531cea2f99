#include "ops/cpu/group_linear.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "base/ceil_div.h"
#include "ops/linear.h"
#include "ops/op_test_util.h"

namespace quire::ops {
namespace {

// A weight of integers, and what it was packed from.
struct Integers {
  WeightFormat format;
  int64_t n = 0, k = 0;
  std::vector<int8_t> data;
  std::vector<float> scales, offsets;  // of the groups
  // Where the format's scales are int8: those, and what they are multiplied by.
  std::vector<int8_t> scale_factors, offset_factors;
  std::vector<float> block_scales, block_offsets;

  int64_t group_size() const { return format.group_size == 0 ? k : format.group_size; }
  int64_t groups() const { return ceil_div(k, group_size()); }
  float value(int64_t row, int64_t i) const {
    const auto group = static_cast<size_t>(row * groups() + i / group_size());
    const float scaled = scales[group] * static_cast<float>(data[static_cast<size_t>(row * k + i)]);
    return format.has_offsets ? scaled + offsets[group] : scaled;
  }
  GroupedRows rows(int64_t begin, int64_t end) const {
    if (format.scale_dtype == DType::kInt8) return rows_of_factors(begin, end);
    return {.rows = end - begin,
            .data = data.data() + begin * k,
            .scales = scales.data() + begin * groups(),
            .offsets = format.has_offsets ? offsets.data() + begin * groups() : nullptr};
  }
  GroupedRows rows_of_factors(int64_t begin, int64_t end) const {
    const int64_t blocks = ceil_div(k, kScaleBlock);
    return {
        .rows = end - begin,
        .data = data.data() + begin * k,
        .scales = block_scales.data() + begin * blocks,
        .offsets = format.has_offsets ? block_offsets.data() + begin * blocks : nullptr,
        .scale_factors = scale_factors.data() + begin * groups(),
        .offset_factors = format.has_offsets ? offset_factors.data() + begin * groups() : nullptr};
  }
  // Makes the scales, or the offsets, of the groups.
  void make_factors(std::vector<int8_t>& factors, std::vector<float>& blocks,
                    std::vector<float>& products, std::mt19937& random) const {
    const int64_t per_row = ceil_div(k, kScaleBlock);
    blocks = random_tensor({n * per_row}, random).values();
    for (int64_t i = 0; i < n * groups(); ++i) {
      factors.push_back(static_cast<int8_t>(random_int(-128, 127, random)));
      const int64_t block = i / groups() * per_row + i % groups() * group_size() / kScaleBlock;
      products.push_back(blocks[static_cast<size_t>(block)] * static_cast<float>(factors.back()));
    }
  }
  Weight weight() const {
    Weight weight(format, n, k);
    weight.pack_groups(0, rows(0, n));
    return weight;
  }
};

// Numbers that the format's scales and offsets can have.
std::vector<float> random_scales(const WeightFormat& format, int64_t count, std::mt19937& random) {
  std::vector<float> scales = random_tensor({count}, random).values();
  if (format.scale_dtype == DType::kFloat32) return scales;
  for (float& scale : scales) scale = static_cast<float>(BFloat16(scale));
  return scales;
}

int lowest_of(const WeightFormat& format) {
  return format.is_unsigned ? 0 : format.kind == WeightKind::kInt4 ? -8 : -128;
}
int highest_of(const WeightFormat& format) {
  return format.is_unsigned ? 15 : format.kind == WeightKind::kInt4 ? 7 : 127;
}

Integers random_integers(WeightFormat format, int64_t n, int64_t k, std::mt19937& random) {
  Integers made;
  made.format = format;
  made.n = n;
  made.k = k;
  for (int64_t i = 0; i < n * k; ++i) {
    made.data.push_back(
        static_cast<int8_t>(random_int(lowest_of(format), highest_of(format), random)));
  }
  if (format.scale_dtype == DType::kInt8) {
    made.make_factors(made.scale_factors, made.block_scales, made.scales, random);
    if (!format.has_offsets) return made;
    made.make_factors(made.offset_factors, made.block_offsets, made.offsets, random);
    return made;
  }
  made.scales = random_scales(format, n * made.groups(), random);
  if (format.has_offsets) made.offsets = random_scales(format, n * made.groups(), random);
  return made;
}

WeightFormat unsigned_int4(DType scale_dtype, bool has_offsets = true) {
  WeightFormat format = WeightFormat::integers(4, 32, has_offsets, scale_dtype);
  format.is_unsigned = true;
  return format;
}

std::vector<WeightFormat> all_formats() {
  std::vector<WeightFormat> formats;
  for (const int bits : {8, 4}) {
    for (const int64_t group_size : {0, 16, 32, 64, 128}) {
      for (const bool has_offsets : {false, true}) {
        formats.push_back(WeightFormat::integers(bits, group_size, has_offsets));
      }
    }
    for (const bool has_offsets : {false, true}) {
      formats.push_back(WeightFormat::integers(bits, 32, has_offsets, DType::kBFloat16));
      for (const int64_t group_size : {16, 32}) {
        formats.push_back(WeightFormat::integers(bits, group_size, has_offsets, DType::kInt8));
      }
    }
  }
  for (const bool has_offsets : {false, true}) {
    for (const DType scale_dtype : {DType::kFloat32, DType::kInt8}) {
      formats.push_back(unsigned_int4(scale_dtype, has_offsets));
    }
  }
  return formats;
}

// Rows of integers as words, as checkpoints pack them, with a word between the rows.
std::vector<uint32_t> words_of(const Integers& made) {
  const int bits = made.format.kind == WeightKind::kInt4 ? 4 : 8;
  const int excess = made.format.is_unsigned ? 0 : 1 << (bits - 1);
  const int64_t per_word = 32 / bits;
  const int64_t stride = made.k / per_word + 1;
  std::vector<uint32_t> words(static_cast<size_t>(made.n * stride));
  for (int64_t row = 0; row < made.n; ++row) {
    for (int64_t i = 0; i < made.k; ++i) {
      const auto number =
          static_cast<uint32_t>(made.data[static_cast<size_t>(row * made.k + i)] + excess);
      words[static_cast<size_t>(row * stride + i / per_word)] |= number << (i % per_word * bits);
    }
  }
  return words;
}

TEST(GroupPanels, WordsArePackedAsTheirIntegers) {
  std::mt19937 random(15);
  constexpr int64_t kOutputs = 150, kInputs = 256;
  for (const WeightFormat& format : all_formats()) {
    const Integers made = random_integers(format, kOutputs, kInputs, random);
    const std::vector<uint32_t> words = words_of(made);
    const int64_t stride = std::ssize(words) / kOutputs;
    const Weight expected = made.weight();
    Weight packed(format, kOutputs, kInputs);
    // Within a panel, and across the end of one.
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 50}, {50, 150}}) {
      GroupedRows rows = made.rows(begin, end);
      rows.data = nullptr;
      rows.words = words.data() + begin * stride;
      rows.word_stride = stride;
      packed.pack_groups(begin, rows);
    }
    const size_t bytes = weight_data_bytes(format, kOutputs, kInputs, DeviceType::kCpu);
    EXPECT_EQ(std::memcmp(packed.data(), expected.data(), bytes), 0)
        << static_cast<int>(format.kind) << ", groups of " << format.group_size;
  }
}

WeightFormat rounding(WeightFormat format) {
  format.rounds_activations = true;
  return format;
}

std::string text_of(const WeightFormat& format) {
  return std::string(format.is_unsigned ? "unsigned " : "") +
         (format.kind == WeightKind::kInt4 ? "int4, " : "int8, ") +
         std::to_string(format.group_size) + (format.has_offsets ? ", offsets" : "") +
         ", scales of " + std::string(name_of(format.scale_dtype));
}

// What is defined for rounded activations, in plain loops over the numbers that were packed.
float rounded_product(const Integers& weight, const float* in, int64_t output) {
  const int64_t group_size = weight.format.group_size == 0 ? 128 : weight.format.group_size;
  float sum = 0.0f;
  for (int64_t first = 0; first < weight.k; first += group_size) {
    const int64_t last = std::min(weight.k, first + group_size);
    float largest = 0.0f;
    for (int64_t i = first; i < last; ++i) largest = std::max(largest, std::abs(in[i]));
    if (largest == 0.0f) continue;
    int32_t products = 0, inputs = 0;
    for (int64_t i = first; i < last; ++i) {
      const auto integer = static_cast<int32_t>(std::lrint(in[i] * (127.0f / largest)));
      products += integer * weight.data[static_cast<size_t>(output * weight.k + i)];
      inputs += integer;
    }
    const auto group = static_cast<size_t>(output * weight.groups() + first / weight.group_size());
    const float scale = largest / 127.0f;
    sum = std::fma(static_cast<float>(products), weight.scales[group] * scale, sum);
    if (weight.format.has_offsets) {
      sum = std::fma(scale * static_cast<float>(inputs), weight.offsets[group], sum);
    }
  }
  return sum;
}

TEST(GroupPanels, GiveBackWhatWasPackedInAnyRowRanges) {
  std::mt19937 random(1);
  for (const WeightFormat& format : all_formats()) {
    for (const int64_t n : {1, 64, 65, 130}) {
      for (const int64_t k : {1, 33, 128, 300}) {
        const Integers made = random_integers(format, n, k, random);
        Weight weight(format, n, k);
        for (int64_t row = 0; row < n;) {
          const int64_t end = std::min(n, row + random_int(1, 70, random));
          weight.pack_groups(row, made.rows(row, end));
          row = end;
        }
        std::vector<float> out(static_cast<size_t>(k));
        for (int64_t row = 0; row < n; ++row) {
          weight.unpack_row(row, out.data());
          for (int64_t i = 0; i < k; ++i) {
            ASSERT_EQ(out[static_cast<size_t>(i)], made.value(row, i))
                << text_of(format) << " [" << n << ", " << k << "] at " << row << ", " << i;
          }
        }
      }
    }
  }
}

TEST(GroupPanels, TakeOneScaleAndAFewBitsAnInput) {
  EXPECT_EQ(Weight(WeightFormat::integers(8, 32), 64, 64).bytes(), 64u * 2 * (32 + 4));
  EXPECT_EQ(Weight(WeightFormat::integers(4, 32), 64, 64).bytes(), 64u * 2 * (16 + 4));
  EXPECT_EQ(Weight(WeightFormat::integers(4, 32, true), 65, 64).bytes(), 128u * 2 * (16 + 8));
  EXPECT_EQ(Weight(WeightFormat::integers(8, 0), 64, 200).bytes(), 64u * 2 * (128 + 4));
  EXPECT_EQ(Weight(WeightFormat::integers(4, 32, true, DType::kBFloat16), 64, 64).bytes(),
            64u * 2 * (16 + 4));
  EXPECT_EQ(Weight(WeightFormat::integers(4, 32, true, DType::kInt8), 64, 512).bytes(),
            64u * (16 * (16 + 2) + 2 * 8));
  EXPECT_EQ(Weight(WeightFormat::integers(8, 16, false, DType::kInt8), 64, 512).bytes(),
            64u * (32 * (16 + 1) + 2 * 4));
}

class GroupLinearTest : public IsaTest {};

// Without rounding, integers are as a dense weight of their numbers.
TEST_P(GroupLinearTest, FloatActivationsGiveTheBitsOfTheDenseWeight) {
  std::mt19937 random(2);
  ThreadPool pool(2);
  Stream stream(pool, GetParam());
  size_t num_formats = 0;
  for (const WeightFormat& format : all_formats()) {
    size_t number = num_formats++;
    for (const auto& [rows, n, k] :
         {std::array<int64_t, 3>{1, 65, 40}, {7, 64, 1300}, {2, 3, 1}, {13, 70, 257}}) {
      if (k > 1 && !takes(number++, 3)) continue;
      const Integers made = random_integers(format, n, k, random);
      const Weight weight = made.weight();
      Weight dense(DType::kFloat32, n, k);
      OwnedTensor<float> numbers({n, k});
      for (int64_t row = 0; row < n; ++row) weight.unpack_row(row, &numbers.at(row, 0));
      dense.pack_rows(0, numbers.tensor());
      OwnedTensor<float> in = random_tensor({rows, k}, random);
      OwnedTensor<float> bias = random_tensor({n}, random);
      OwnedTensor<float> out({rows, n}, -99.0f), expected({rows, n});
      linear(stream, in.tensor(), weight, bias.tensor(), out.tensor());
      linear(stream, in.tensor(), dense, bias.tensor(), expected.tensor());
      EXPECT_TRUE(out.same_bits(expected)) << text_of(format) << " K=" << k;
    }
  }
}

// Every instruction set gives the bits of the plain loops.
TEST_P(GroupLinearTest, RoundedActivationsGiveTheBitsOfPlainLoops) {
  std::mt19937 random(3);
  ThreadPool pool(2);
  Stream stream(pool, GetParam());
  size_t num_formats = 0;
  for (const WeightFormat& format : all_formats()) {
    size_t number = num_formats++;
    for (const auto& [rows, n, k] : {std::array<int64_t, 3>{1, 65, 40},
                                     {2, 3, 1},
                                     {3, 64, 257},
                                     {4, 20, 128},
                                     {5, 1, 100},
                                     {6, 130, 64},
                                     {19, 66, 2500},
                                     {18, 66, 130},
                                     {39, 10, 200}}) {
      if (!takes(number++, 3)) continue;
      const Integers made = random_integers(rounding(format), n, k, random);
      OwnedTensor<float> in = random_tensor({rows, k}, random);
      OwnedTensor<float> bias = random_tensor({n}, random);
      OwnedTensor<float> sums({rows, n}), out({rows, n}, -99.0f);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t output = 0; output < n; ++output) {
          sums.at(row, output) = rounded_product(made, &in.at(row, 0), output);
        }
      }
      const Weight weight = made.weight();
      for (const bool with_bias : {false, true}) {
        linear(stream, in.tensor(), weight, with_bias ? bias.tensor() : Tensor(), out.tensor());
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t output = 0; output < n; ++output) {
            const float sum = sums.at(row, output);
            ASSERT_EQ(out.at(row, output),
                      with_bias ? sum + bias.values()[static_cast<size_t>(output)] : sum)
                << text_of(format) << " " << rows << "x" << n << "x" << k << " at " << row << ", "
                << output;
          }
        }
      }
    }
  }
}

// Inputs that were sorted by group give the product of those in their order.
TEST_P(GroupLinearTest, APermutationIsOfTheInputs) {
  std::mt19937 random(7);
  ThreadPool pool(1);
  Stream stream(pool, GetParam());
  for (const bool rounds : {false, true}) {
    for (const int64_t rows : {1, 9, 18}) {
      constexpr int64_t kInputs = 70;
      WeightFormat format = WeightFormat::integers(rows == 18 ? 8 : 4, 32, true);
      format.rounds_activations = rounds;
      const Integers made = random_integers(format, 5, kInputs, random);
      std::vector<int32_t> permutation(kInputs);
      std::iota(permutation.begin(), permutation.end(), 0);
      std::shuffle(permutation.begin(), permutation.end(), random);
      OwnedTensor<float> sorted = random_tensor({rows, kInputs}, random);
      OwnedTensor<float> in({rows, kInputs});
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < kInputs; ++i) {
          in.at(row, permutation[static_cast<size_t>(i)]) = sorted.at(row, i);
        }
      }
      Weight weight = made.weight();
      weight.set_permutation(permutation);
      OwnedTensor<float> out({rows, 5}), expected({rows, 5});
      linear(stream, in.tensor(), weight, Tensor(), out.tensor());
      linear(stream, sorted.tensor(), made.weight(), Tensor(), expected.tensor());
      EXPECT_TRUE(out.same_bits(expected));
      std::vector<float> numbers(kInputs);
      weight.unpack_row(3, numbers.data());
      for (int64_t i = 0; i < kInputs; ++i) {
        const auto input = static_cast<size_t>(permutation[static_cast<size_t>(i)]);
        EXPECT_EQ(numbers[input], made.value(3, i));
      }
    }
  }
}

// The largest sums that a group can have.
TEST_P(GroupLinearTest, NothingSaturates) {
  std::mt19937 random(4);
  ThreadPool pool(1);
  Stream stream(pool, GetParam());
  for (const WeightFormat& format : all_formats()) {
    for (const int sign : {1, -1}) {
      for (const int64_t rows : {1, 8, 18}) {
        Integers made = random_integers(rounding(format), 5, 256, random);
        std::fill(made.data.begin(), made.data.end(),
                  static_cast<int8_t>(sign < 0 ? lowest_of(format) : highest_of(format)));
        OwnedTensor<float> in({rows, 256}, 3.0f);
        OwnedTensor<float> out({rows, 5});
        linear(stream, in.tensor(), made.weight(), Tensor(), out.tensor());
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t output = 0; output < 5; ++output) {
            ASSERT_EQ(out.at(row, output), rounded_product(made, &in.at(row, 0), output));
          }
        }
      }
    }
  }
}

TEST_P(GroupLinearTest, ARowDoesNotDependOnItsNeighbours) {
  std::mt19937 random(5);
  ThreadPool one(1), three(3);
  Stream alone(one, GetParam()), together(three, GetParam());
  for (const WeightFormat& format :
       {rounding(WeightFormat::integers(8, 32)), rounding(WeightFormat::integers(4, 32, true)),
        rounding(WeightFormat::integers(4, 0)), WeightFormat::integers(4, 64),
        rounding(WeightFormat::integers(8, 16, false, DType::kInt8)),
        rounding(unsigned_int4(DType::kFloat32)), rounding(unsigned_int4(DType::kInt8))}) {
    for (const auto& [rows, n, k] :
         {std::array<int64_t, 3>{110, 130, 1300}, {37, 64, 4500}, {1100, 20, 70}}) {
      const Weight weight = random_integers(format, n, k, random).weight();
      OwnedTensor<float> in = random_tensor({rows, k}, random);
      OwnedTensor<float> single({rows, n}), batched({rows, n});
      for (int64_t t = 0; t < rows; ++t) {
        linear(alone, in.tensor().rows(t, t + 1), weight, Tensor(), single.tensor().rows(t, t + 1));
      }
      linear(together, in.tensor(), weight, Tensor(), batched.tensor());
      EXPECT_TRUE(single.same_bits(batched)) << text_of(format);
      for (int64_t t = 0; t < rows;) {
        const int64_t end = std::min(rows, t + random_int(1, 40, random));
        linear(together, in.tensor().rows(t, end), weight, Tensor(), batched.tensor().rows(t, end));
        t = end;
      }
      EXPECT_TRUE(single.same_bits(batched)) << text_of(format);
    }
  }
}

// What is not a number stays visible, in its own row; what is too small to scale is zero.
TEST_P(GroupLinearTest, NumbersOutOfRangeStayInTheirRow) {
  std::mt19937 random(6);
  ThreadPool pool(1);
  Stream stream(pool, GetParam());
  const Integers made = random_integers(rounding(WeightFormat::integers(8, 32)), 66, 70, random);
  constexpr int64_t kRows = 18;
  OwnedTensor<float> in = random_tensor({kRows, 70}, random);
  in.at(0, 69) = std::numeric_limits<float>::infinity();
  in.at(1, 3) = -std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < 70; ++i) in.at(2, i) = 0.0f;
  for (int64_t i = 0; i < 70; ++i) in.at(3, i) = std::numeric_limits<float>::denorm_min();
  OwnedTensor<float> out({kRows, 66});
  linear(stream, in.tensor(), made.weight(), Tensor(), out.tensor());
  for (int64_t output = 0; output < 66; ++output) {
    EXPECT_TRUE(std::isnan(out.at(0, output)));
    EXPECT_TRUE(std::isnan(out.at(1, output)));
    EXPECT_EQ(out.at(2, output), 0.0f);
    EXPECT_EQ(out.at(3, output), 0.0f);
    for (int64_t row = 4; row < kRows; ++row) {
      EXPECT_EQ(out.at(row, output), rounded_product(made, &in.at(row, 0), output));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, GroupLinearTest, testing::ValuesIn(supported_isas()), isa_test_name);

TEST(GroupPanelsDeathTest, RefuseWhatTheFormatIsNot) {
  const int8_t data[2] = {1, 2};
  const float scale = 1.0f;
  Weight weight(WeightFormat::integers(8, 32), 1, 2);
  const GroupedRows offsets = {.rows = 1, .data = data, .scales = &scale, .offsets = &scale};
  EXPECT_DEATH(weight.pack_groups(0, offsets), "where the weight's format has them");
  const GroupedRows rows = {.rows = 1, .data = data, .scales = &scale};
  EXPECT_DEATH(weight.pack_groups(1, rows), "inside the weight");
  Weight dense(DType::kFloat32, 1, 2);
  EXPECT_DEATH(dense.pack_groups(0, rows), "of integers");
  OwnedTensor<float> floats({1, 2});
  EXPECT_DEATH(weight.pack_rows(0, floats.tensor()), "packed with their scales");
  EXPECT_DEATH(Weight(WeightFormat::integers(8, 48), 1, 2), "16, 32, 64 or 128");
}

}  // namespace
}  // namespace quire::ops
