#include "ops/group_tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/dtype.h"

namespace quire::ops {
namespace {

struct TilesCase {
  WeightFormat format;
  int64_t n;
  int64_t k;
};

WeightFormat unsigned_int4() {
  WeightFormat format = WeightFormat::integers(4, 32, /*has_offsets=*/true);
  format.is_unsigned = true;
  return format;
}

// Random rows with zero points that are integers, and what each number is.
class TilesSource {
 public:
  explicit TilesSource(const TilesCase& c) : c_(c) {
    const WeightFormat& format = c.format;
    const bool is_int4 = format.kind == WeightKind::kInt4;
    const int low = format.is_unsigned ? 0 : is_int4 ? -8 : -128;
    std::uniform_int_distribution<int> integer(low, low + (is_int4 ? 15 : 255));
    std::uniform_real_distribution<float> scale(0.01f, 0.1f);
    for (int64_t i = 0; i < c.n * c.k; ++i) {
      data_.push_back(static_cast<int8_t>(integer(random_)));
    }
    for (int64_t i = 0; i < c.n * groups(); ++i) {
      scales_.push_back(scale(random_));
      offsets_.push_back(-scales_.back() * static_cast<float>(integer(random_)));
    }
  }

  GroupedRows rows(int64_t first, int64_t count) const {
    return {.rows = count,
            .data = data_.data() + first * c_.k,
            .scales = scales_.data() + first * groups(),
            .offsets = c_.format.has_offsets ? offsets_.data() + first * groups() : nullptr};
  }
  float at(int64_t row, int64_t input) const {
    const int64_t group = c_.format.group_size == 0 ? 0 : input / c_.format.group_size;
    const auto i = static_cast<size_t>(row * groups() + group);
    const float scaled = scales_[i] * static_cast<float>(data_[index(row, input)]);
    return c_.format.has_offsets ? scaled + offsets_[i] : scaled;
  }
  std::vector<float>& scales() { return scales_; }
  std::vector<float>& offsets() { return offsets_; }

 private:
  int64_t groups() const {
    return c_.format.group_size == 0 ? 1 : ceil_div(c_.k, c_.format.group_size);
  }
  size_t index(int64_t row, int64_t input) const { return static_cast<size_t>(row * c_.k + input); }

  TilesCase c_;
  std::mt19937 random_{17};
  std::vector<int8_t> data_;
  std::vector<float> scales_;
  std::vector<float> offsets_;
};

std::vector<TilesCase> tiles_cases() {
  std::vector<TilesCase> cases;
  for (const int bits : {4, 8}) {
    for (const int64_t group : {0, 32, 64, 128}) {
      for (const bool has_offsets : {false, true}) {
        const WeightFormat format = WeightFormat::integers(bits, group, has_offsets);
        cases.push_back({format, 64, 256});
        cases.push_back({format, 45, 200});
        cases.push_back({format, 1, 8});
      }
    }
  }
  cases.push_back({unsigned_int4(), 40, 160});
  return cases;
}

TEST(GroupTiles, GivesBackWhatWasPackedInAnyPieces) {
  for (const TilesCase& c : tiles_cases()) {
    SCOPED_TRACE(std::to_string(c.n) + " x " + std::to_string(c.k) + ", groups of " +
                 std::to_string(c.format.group_size));
    const GroupTiles layout = group_tiles(c.format, c.n, c.k);
    const TilesSource source(c);
    std::vector<std::byte> tiles(static_cast<size_t>(layout.bytes()));
    for (int64_t first = 0; first < c.n; first += 7) {
      const int64_t count = std::min<int64_t>(7, c.n - first);
      pack_tile_rows(layout, first, source.rows(first, count), tiles.data());
    }
    std::vector<float> row(static_cast<size_t>(c.k));
    for (int64_t i = 0; i < c.n; ++i) {
      unpack_tile_row(layout, i, tiles.data(), row.data());
      for (int64_t j = 0; j < c.k; ++j) {
        const float expected = source.at(i, j);
        ASSERT_NEAR(row[static_cast<size_t>(j)], expected, 1e-5f) << i << ' ' << j;
      }
    }
  }
}

// The one row of a case with this offset, of scales of 1.
std::vector<float> row_with_offset(const TilesCase& c, float offset, float* mean = nullptr) {
  TilesSource source(c);
  source.scales() = {1};
  source.offsets() = {offset};
  const GroupTiles layout = group_tiles(c.format, c.n, c.k);
  std::vector<std::byte> tiles(static_cast<size_t>(layout.bytes()));
  pack_tile_rows(layout, 0, source.rows(0, 1), tiles.data());
  std::vector<float> row(static_cast<size_t>(c.k));
  unpack_tile_row(layout, 0, tiles.data(), row.data());
  for (int64_t i = 0; i < c.k; ++i) {
    if (mean != nullptr) {
      *mean += source.at(0, i) / static_cast<float>(c.k);
    } else {
      EXPECT_EQ(row[static_cast<size_t>(i)], source.at(0, i)) << offset;
    }
  }
  return row;
}

// As long as both types of 16 bits hold the sums: they tell numbers apart that are 1 % of them.
TEST(GroupTiles, KeepsIntegersBesideLargeShifts) {
  for (const int bits : {4, 8}) {
    const TilesCase c = {WeightFormat::integers(bits, 128, /*has_offsets=*/true), 1, 128};
    for (const float offset : {2049.0f, -2500.0f, 32768.0f, -32768.0f}) {
      for (const float value : row_with_offset(c, offset)) {
        EXPECT_NEAR(static_cast<float>(Float16(value)), value, std::abs(value) / 2048);
        EXPECT_NEAR(static_cast<float>(BFloat16(value)), value, std::abs(value) / 256);
      }
    }
  }
}

TEST(GroupTiles, HasTheMeanOfAGroupWithALargerShift) {
  for (const int bits : {4, 8}) {
    const TilesCase c = {WeightFormat::integers(bits, 128, /*has_offsets=*/true), 1, 100};
    for (const float offset : {32769.0f, -40000.0f}) {
      float mean = 0;
      for (const float value : row_with_offset(c, offset, &mean)) EXPECT_NEAR(value, mean, 0.1f);
    }
  }
}

// A group whose numbers differ by next to nothing has their mean as its scale.
TEST(GroupTiles, HasNoShiftThatIsNotFinite) {
  const TilesCase c = {WeightFormat::integers(4, 128, /*has_offsets=*/true), 2, 128};
  TilesSource source(c);
  source.scales() = {0, 1e-9f};
  source.offsets() = {0.5f, -0.25f};
  const GroupTiles layout = group_tiles(c.format, c.n, c.k);
  std::vector<std::byte> tiles(static_cast<size_t>(layout.bytes()));
  pack_tile_rows(layout, 0, source.rows(0, 2), tiles.data());
  std::vector<float> row(128);
  unpack_tile_row(layout, 0, tiles.data(), row.data());
  for (const float value : row) EXPECT_EQ(value, 0.5f);
  unpack_tile_row(layout, 1, tiles.data(), row.data());
  for (const float value : row) EXPECT_NEAR(value, -0.25f, 1e-8f);
}

TEST(GroupTiles, KeepsScalesThatAreNotNumbers) {
  const TilesCase c = {WeightFormat::integers(4, 128, /*has_offsets=*/true), 1, 128};
  TilesSource source(c);
  source.scales() = {std::numeric_limits<float>::quiet_NaN()};
  source.offsets() = {0};
  const GroupTiles layout = group_tiles(c.format, c.n, c.k);
  std::vector<std::byte> tiles(static_cast<size_t>(layout.bytes()));
  pack_tile_rows(layout, 0, source.rows(0, 1), tiles.data());
  std::vector<float> row(128);
  unpack_tile_row(layout, 0, tiles.data(), row.data());
  for (const float value : row) EXPECT_TRUE(std::isnan(value));
}

TEST(GroupTiles, AreOfSomeFormats) {
  EXPECT_TRUE(has_group_tiles(WeightFormat::integers(4, 128)));
  EXPECT_FALSE(has_group_tiles(WeightFormat::integers(4, 16)));
  EXPECT_FALSE(has_group_tiles(WeightFormat::integers(4, 32, true, DType::kInt8)));
  EXPECT_FALSE(has_group_tiles(WeightFormat::float8()));
}

}  // namespace
}  // namespace quire::ops
