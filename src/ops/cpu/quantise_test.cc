#include "ops/cpu/quantise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/dispatch.h"
#include "ops/op_test_util.h"

namespace quire::ops {
namespace {

std::vector<float> unpacked_row(const Weight& weight, int64_t row) {
  std::vector<float> out(static_cast<size_t>(weight.k()));
  weight.unpack_row(row, out.data());
  return out;
}

double squared_error(OwnedTensor<float>& rows, const Weight& weight) {
  double error = 0;
  for (int64_t row = 0; row < weight.n(); ++row) {
    const std::vector<float> numbers = unpacked_row(weight, row);
    for (int64_t i = 0; i < weight.k(); ++i) {
      const double difference = numbers[static_cast<size_t>(i)] - rows.at(row, i);
      error += difference * difference;
    }
  }
  return error;
}

// The error of integers whose range ends at each group's largest magnitude.
double error_without_a_search(OwnedTensor<float>& rows, int64_t n, int64_t k, int64_t group,
                              float largest_integer) {
  double error = 0;
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t first = 0; first < k; first += group) {
      float largest = 0;
      for (int64_t i = first; i < first + group; ++i) {
        largest = std::max(largest, std::abs(rows.at(row, i)));
      }
      const float scale = largest / largest_integer;
      for (int64_t i = first; i < first + group; ++i) {
        const double difference = scale * std::nearbyint(rows.at(row, i) / scale) - rows.at(row, i);
        error += difference * difference;
      }
    }
  }
  return error;
}

TEST(Quantise, ChoosesScalesOfASmallerErrorThanTheRangeGives) {
  std::mt19937 random(1);
  OwnedTensor<float> rows = random_tensor({70, 256}, random);
  for (const int64_t group : {32, 128}) {
    Weight int8(WeightFormat::integers(8, group), 70, 256);
    int8.quantise_rows(0, rows.tensor());
    EXPECT_LE(squared_error(rows, int8), error_without_a_search(rows, 70, 256, group, 127));
    Weight int4(WeightFormat::integers(4, group), 70, 256);
    int4.quantise_rows(0, rows.tensor());
    EXPECT_LE(squared_error(rows, int4), 0.75 * error_without_a_search(rows, 70, 256, group, 7));
  }
}

// Integers times a power of two come back as they were.
TEST(Quantise, KeepsWhatIntegersHold) {
  std::mt19937 random(2);
  for (const int bits : {8, 4}) {
    for (const int64_t k : {5, 64, 70}) {
      OwnedTensor<float> rows({3, k});
      for (float& value : rows.values()) {
        value = 0.25f * static_cast<float>(bits == 8 ? random_int(-127, 127, random)
                                                     : random_int(-8, 7, random));
      }
      for (int64_t row = 0; row < 3; ++row) {
        for (int64_t first = 0; first < k; first += 32) {
          rows.at(row, first) = bits == 8 ? 0.25f * 127 : 0.25f * -8;
        }
      }
      Weight weight(WeightFormat::integers(bits, 32), 3, k);
      weight.quantise_rows(0, rows.tensor());
      for (int64_t row = 0; row < 3; ++row) {
        const std::vector<float> numbers = unpacked_row(weight, row);
        for (int64_t i = 0; i < k; ++i) {
          EXPECT_EQ(numbers[static_cast<size_t>(i)], rows.at(row, i)) << bits << " bits, " << i;
        }
      }
    }
  }
}

TEST(Quantise, TakesEveryFloatingPointTypeAndAnyRowRange) {
  OwnedTensor<BFloat16> bf16({20, 40}, BFloat16(1.5f));
  OwnedTensor<Float16> f16({2, 40}, Float16(-0.25f));
  Weight weight(WeightFormat::integers(4, 16), 22, 40);
  weight.quantise_rows(2, bf16.tensor());
  weight.quantise_rows(0, f16.tensor());
  EXPECT_EQ(unpacked_row(weight, 1), std::vector<float>(40, -0.25f));
  EXPECT_EQ(unpacked_row(weight, 21), std::vector<float>(40, 1.5f));
}

TEST(Quantise, ZerosAreZeroAndWhatIsNotFiniteStaysVisible) {
  OwnedTensor<float> rows({3, 32}, 0.0f);
  rows.at(1, 7) = std::numeric_limits<float>::denorm_min();
  rows.at(2, 7) = std::numeric_limits<float>::infinity();
  for (const int bits : {8, 4}) {
    Weight weight(WeightFormat::integers(bits, 32), 3, 32);
    weight.quantise_rows(0, rows.tensor());
    EXPECT_EQ(unpacked_row(weight, 0), std::vector<float>(32, 0.0f));
    EXPECT_EQ(unpacked_row(weight, 1), std::vector<float>(32, 0.0f));
    for (const float number : unpacked_row(weight, 2)) EXPECT_TRUE(std::isnan(number));
  }
}

class QuantiseTest : public IsaTest {};

TEST_P(QuantiseTest, GivesTheBitsOfPlainLoops) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const int count = 16 << random_int(0, 3, random);
    OwnedTensor<float> values = random_tensor({count}, random);
    if (round % 5 == 0) values.values()[3] = -values.values()[9];
    QuantiseGroup group = {values.values().data(), count, -8, 7, -9.5f, 0.25f, 13};
    if (round % 2 == 0) group = {values.values().data(), count, -127, 127, -127, 0.25f, 1};
    int8_t data[128], expected[128];
    const float scale = kernels_for(GetParam()).quantise_group(group, data);
    EXPECT_EQ(scale, scalar::quantise_group(group, expected));
    EXPECT_TRUE(std::equal(data, data + count, expected));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, QuantiseTest, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace quire::ops
