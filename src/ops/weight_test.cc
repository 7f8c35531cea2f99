#include "ops/weight.h"

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
        EXPECT_EQ(weight.bytes(), Weight::bytes(dtype, n, k));
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
  EXPECT_EQ(Weight::bytes(DType::kBFloat16, 65, 3), 128u * 4 * 2);
  EXPECT_EQ(Weight::bytes(DType::kFloat32, 64, 3), 64u * 3 * 4);
}

TEST(WeightDeathTest, RefusesRowsOutside) {
  Weight weight(DType::kFloat32, 4, 3);
  OwnedTensor<float> rows({2, 3});
  EXPECT_DEATH(weight.pack_rows(3, rows.tensor()), "inside the weight");
}

}  // namespace
}  // namespace quire::ops
