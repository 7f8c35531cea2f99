#include "ops/cpu/quantise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
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

WeightFormat rounded_to(int bits, int64_t group_size, DType scale_dtype = DType::kFloat32) {
  return WeightFormat::integers(bits, group_size, bits == 4, scale_dtype);
}

TEST(Quantise, HasASmallerErrorThanTheRangesGive) {
  std::mt19937 random(1);
  OwnedTensor<float> rows = random_tensor({70, 256}, random);
  for (const DType scales : {DType::kFloat32, DType::kBFloat16}) {
    for (const int64_t group : {32, 128}) {
      Weight int8(rounded_to(8, group, scales), 70, 256);
      int8.quantise_rows(0, rows.tensor());
      EXPECT_LE(squared_error(rows, int8),
                1.01 * error_without_a_search(rows, 70, 256, group, 127));
      Weight int4(rounded_to(4, group, scales), 70, 256);
      int4.quantise_rows(0, rows.tensor());
      EXPECT_LE(squared_error(rows, int4), 0.7 * error_without_a_search(rows, 70, 256, group, 7));
    }
  }
}

// Integers times a power of two come back as they were.
TEST(Quantise, KeepsWhatIntegersHold) {
  std::mt19937 random(2);
  for (const int bits : {8, 4}) {
    const int low = bits == 8 ? -127 : -8, high = bits == 8 ? 127 : 7;
    for (const int64_t k : {64, 96}) {
      OwnedTensor<float> rows({3, k});
      for (float& value : rows.values()) {
        value = 0.25f * static_cast<float>(random_int(low, high, random));
      }
      for (int64_t row = 0; row < 3; ++row) {
        for (int64_t first = 0; first < k; first += 32) {
          rows.at(row, first) = 0.25f * static_cast<float>(low);
          rows.at(row, first + 1) = 0.25f * static_cast<float>(high);
        }
      }
      Weight weight(rounded_to(bits, 32, DType::kBFloat16), 3, k);
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
  OwnedTensor<BFloat16> bf16({20, 48}, BFloat16(1.5f));
  OwnedTensor<Float16> f16({2, 48}, Float16(-0.25f));
  Weight weight(rounded_to(4, 16), 22, 48);
  weight.quantise_rows(2, bf16.tensor());
  weight.quantise_rows(0, f16.tensor());
  EXPECT_EQ(unpacked_row(weight, 1), std::vector<float>(48, -0.25f));
  EXPECT_EQ(unpacked_row(weight, 21), std::vector<float>(48, 1.5f));
}

TEST(Quantise, ZerosAreZeroAndWhatIsNotFiniteStaysVisible) {
  OwnedTensor<float> rows({4, 32}, 0.0f);
  rows.at(1, 7) = std::numeric_limits<float>::denorm_min();
  rows.at(2, 7) = std::numeric_limits<float>::infinity();
  rows.at(3, 8) = std::numeric_limits<float>::quiet_NaN();
  for (const int bits : {8, 4}) {
    Weight weight(rounded_to(bits, 32), 4, 32);
    weight.quantise_rows(0, rows.tensor());
    EXPECT_EQ(unpacked_row(weight, 0), std::vector<float>(32, 0.0f));
    EXPECT_EQ(unpacked_row(weight, 1), std::vector<float>(32, 0.0f));
    for (const int64_t row : {2, 3}) {
      for (const float number : unpacked_row(weight, row)) EXPECT_TRUE(std::isnan(number));
    }
  }
}

class QuantiseTest : public IsaTest {};

TEST_P(QuantiseTest, GivesTheBitsOfPlainLoops) {
  std::mt19937 random(3);
  const Kernels& kernels = kernels_for(GetParam());
  for (int round = 0; round < 500; ++round) {
    const int count = 16 << random_int(0, 3, random);
    OwnedTensor<float> values = random_tensor({count}, random);
    const float* in = values.values().data();
    const GroupRounding rounding = {3.3f, 0.7f, -8, 7};
    GroupSums sums, plain_sums;
    kernels.sum_group(in, count, &sums);
    scalar::sum_group(in, count, &plain_sums);
    EXPECT_EQ(std::memcmp(&sums, &plain_sums, sizeof(sums)), 0);
    GroupFit fit, plain_fit;
    kernels.fit_group(in, count, rounding, &fit);
    scalar::fit_group(in, count, rounding, &plain_fit);
    EXPECT_EQ(std::memcmp(&fit, &plain_fit, sizeof(fit)), 0);
    int8_t data[128], plain_data[128];
    kernels.round_group(in, count, rounding, data);
    scalar::round_group(in, count, rounding, plain_data);
    EXPECT_TRUE(std::equal(data, data + count, plain_data));
  }
}

// Numbers of every size, the middles between neighbouring float8, infinities and NaN.
TEST_P(QuantiseTest, RoundsToFloat8) {
  std::vector<float> values;
  for (uint32_t high = 0; high < 1u << 16; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x8000u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  std::vector<uint8_t> rounded(values.size());
  kernels_for(GetParam()).round_f8(values.data(), static_cast<int>(values.size()), rounded.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(rounded[i], Float8E4M3(values[i]).bits) << values[i];
  }
  kernels_for(GetParam())
      .round_e5m2(values.data(), static_cast<int>(values.size()), rounded.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(rounded[i], Float8E5M2(values[i]).bits) << values[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, QuantiseTest, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace quire::ops
