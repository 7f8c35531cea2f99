#include "ops/weight.h"

#include <cmath>
#include <limits>

#include "core/counting_memory.h"
#include "ops/op_test_util.h"

namespace quire::ops {
namespace {

TEST(Weight, GivesBackWhatWasPackedInAnyRowRanges) {
  std::mt19937 random(1);
  for (int64_t n : {1, 63, 64, 65, 200}) {
    for (int64_t k : {1, 2, 31, 300}) {
      OwnedTensor<float> rows = random_tensor({n, k}, random);
      for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        Weight weight(dtype, n, k);
        for (int64_t row = 0; row < n;) {
          const int64_t end = std::min(n, row + random_int(1, 70, random));
          weight.pack_rows(row, rows.tensor().rows(row, end));
          row = end;
        }
        std::vector<float> out(static_cast<size_t>(k));
        for (int64_t row = 0; row < n; ++row) {
          weight.unpack_row(row, out.data());
          for (int64_t i = 0; i < k; ++i) {
            const float value = rows.at(row, i);
            EXPECT_EQ(out[static_cast<size_t>(i)],
                      dtype == DType::kFloat32 ? value : static_cast<float>(BFloat16(value)));
          }
        }
      }
    }
  }
}

TEST(Weight, TakesEveryFloatingPointType) {
  OwnedTensor<BFloat16> bf16({2, 3}, BFloat16(1.5f));
  OwnedTensor<Float16> f16({2, 3}, Float16(-0.25f));
  Weight weight(DType::kFloat32, 4, 3);
  weight.pack_rows(0, bf16.tensor());
  weight.pack_rows(2, f16.tensor());
  std::vector<float> out(3);
  weight.unpack_row(1, out.data());
  EXPECT_EQ(out, std::vector<float>(3, 1.5f));
  weight.unpack_row(3, out.data());
  EXPECT_EQ(out, std::vector<float>(3, -0.25f));
}

TEST(Weight, SourcesMayBeStrided) {
  std::mt19937 random(2);
  OwnedTensor<float> wide = random_tensor({5, 20}, random);
  Weight weight(DType::kFloat32, 5, 6);
  weight.pack_rows(0, wide.tensor().columns(7, 13));
  std::vector<float> out(6);
  weight.unpack_row(4, out.data());
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], wide.at(4, 7 + i));
}

TEST(Weight, MemoryIsRoundedUpToPanels) {
  EXPECT_EQ(Weight(DType::kBFloat16, 65, 3).bytes(), 128u * 4 * 2);
  EXPECT_EQ(Weight(DType::kFloat32, 64, 3).bytes(), 64u * 3 * 4);
  EXPECT_EQ(Weight(WeightFormat::float8(), 65, 3).bytes(), 128u * 3 + 65 * 4);
}

TEST(Weight, TakesWhatItSaysOfAnyDevice) {
  for (const DeviceType type : {DeviceType::kCpu, DeviceType::kCuda}) {
    for (const WeightFormat format : {WeightFormat(DType::kBFloat16), WeightFormat::float8()}) {
      CountingMemory memory;
      const Weight weight(format, 65, 3, {type, 0, &memory});
      EXPECT_EQ(weight.bytes(), memory.taken());
    }
  }
  CountingMemory memory;
  const Device gpu = {DeviceType::kCuda, 0, &memory};
  EXPECT_EQ(Weight(WeightFormat::float8(), 65, 3, gpu).bytes(), 65u * 3 + 65 * 4);
}

// Every float8 in turn, so a row's places show which byte came where.
OwnedTensor<Float8E4M3> float8_rows(int64_t n, int64_t k) {
  OwnedTensor<Float8E4M3> rows({n, k});
  for (size_t i = 0; i < rows.values().size(); ++i) {
    const auto bits = static_cast<uint8_t>(i * 7 % 256);
    rows.values()[i].bits = (bits & 0x7f) == 0x7f ? 0 : bits;  // no NaN
  }
  return rows;
}

TEST(Weight, Float8GivesBackItsNumbersTimesTheRowsScale) {
  for (const int64_t n : {1, 64, 65, 130}) {
    for (const int64_t k : {1, 3, 300}) {
      OwnedTensor<Float8E4M3> rows = float8_rows(n, k);
      OwnedTensor<BFloat16> scales({n, 1});
      for (int64_t row = 0; row < n; ++row)
        scales.at(row, 0) = BFloat16(0.5f + 0.25f * static_cast<float>(row));
      Weight weight(WeightFormat::float8(), n, k);
      const int64_t half = n / 2;
      weight.pack_rows(half, rows.tensor().rows(half, n));
      weight.set_scales(half, scales.tensor().rows(half, n));
      weight.pack_rows(0, rows.tensor().rows(0, half));
      weight.set_scales(0, scales.tensor().rows(0, half));
      std::vector<float> out(static_cast<size_t>(k));
      for (int64_t row = 0; row < n; ++row) {
        EXPECT_EQ(weight.scales()[row], static_cast<float>(scales.at(row, 0)));
        weight.unpack_row(row, out.data());
        for (int64_t i = 0; i < k; ++i) {
          EXPECT_EQ(out[static_cast<size_t>(i)],
                    static_cast<float>(rows.at(row, i)) * weight.scales()[row]);
        }
      }
    }
  }
}

TEST(Weight, Float8BlocksHaveAScaleEach) {
  CountingMemory memory;
  const Device gpu = {DeviceType::kCuda, 0, &memory};
  const Weight weight(WeightFormat::float8(kFloat8Block), 272, 384, gpu);
  EXPECT_EQ(weight.bytes(), 272u * 384 + 3u * 3 * 4);
  EXPECT_EQ(weight.bytes(), memory.taken());
}

// Each number is off by at most a 16th of itself, or half of the smallest step.
TEST(Weight, RoundsRowsToFloat8) {
  constexpr int64_t kRows = 5;
  for (const int64_t k : {1, 8, 77, 256}) {
    OwnedTensor<float> rows({kRows, k});
    for (size_t i = 0; i < rows.values().size(); ++i) {
      rows.values()[i] = std::cos(static_cast<float>(i) * 1.7f) / static_cast<float>(i % 7 + 1);
    }
    for (int64_t j = 0; j < k; ++j) rows.at(3, j) = 0;
    Weight weight(WeightFormat::float8(), kRows, k);
    weight.quantise_rows(2, rows.tensor().rows(2, kRows));
    weight.quantise_rows(0, rows.tensor().rows(0, 2));
    std::vector<float> out(static_cast<size_t>(k));
    for (int64_t row = 0; row < kRows; ++row) {
      weight.unpack_row(row, out.data());
      float largest = 0;
      for (int64_t j = 0; j < k; ++j) largest = std::max(largest, std::abs(rows.at(row, j)));
      EXPECT_EQ(weight.scales()[row], row == 3 ? 1.0f : largest / 448) << row;
      for (int64_t j = 0; j < k; ++j) {
        const float wanted = rows.at(row, j);
        const float bound =
            std::max(std::abs(wanted) / 16, weight.scales()[row] * std::ldexp(1.0f, -10));
        EXPECT_LE(std::abs(out[static_cast<size_t>(j)] - wanted), bound * 1.001f)
            << row << ' ' << j;
      }
    }
  }
}

TEST(Weight, ARowThatIsNotFiniteHasNoScale) {
  OwnedTensor<float> rows({2, 16});
  rows.at(0, 3) = std::numeric_limits<float>::infinity();
  rows.at(1, 3) = std::nanf("");
  Weight weight(WeightFormat::float8(), 2, 16);
  weight.quantise_rows(0, rows.tensor());
  EXPECT_TRUE(std::isnan(weight.scales()[0]));
  EXPECT_TRUE(std::isnan(weight.scales()[1]));
}

TEST(Weight, DenseHasNoScales) {
  Weight weight(DType::kBFloat16, 4, 3);
  EXPECT_EQ(weight.view().format, WeightFormat(DType::kBFloat16));
  EXPECT_EQ(weight.view().data, weight.data());
  EXPECT_EQ(weight.view().scales, nullptr);
}

TEST(WeightDeathTest, RefusesRowsOutside) {
  Weight weight(DType::kFloat32, 4, 3);
  OwnedTensor<float> rows({2, 3});
  EXPECT_DEATH(weight.pack_rows(3, rows.tensor()), "inside the weight");
}

TEST(WeightDeathTest, RefusesWhatItsFormatLacks) {
  OwnedTensor<float> rows({2, 3});
  OwnedTensor<float> scales({2, 1});
  Weight dense(DType::kFloat32, 2, 3);
  EXPECT_DEATH(dense.set_scales(0, scales.tensor()), "format has scales");
  Weight float8(WeightFormat::float8(), 2, 3);
  EXPECT_DEATH(float8.pack_rows(0, rows.tensor()), "another element type");
}

}  // namespace
}  // namespace quire::ops
