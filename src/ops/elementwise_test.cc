// Norm, activation, embedding and gather against plain formulas in double.
#include <algorithm>
#include <cmath>

#include "ops/activation.h"
#include "ops/embedding.h"
#include "ops/norm.h"
#include "ops/op_test_util.h"

namespace quire::ops {
namespace {

class ElementwiseTest : public IsaTest {};

TEST_P(ElementwiseTest, RmsNorm) {
  std::mt19937 random(1);
  ThreadPool pool(2);
  Stream stream(pool, GetParam());
  for (int64_t h : {1, 7, 16, 64, 100, 1024, 3001}) {
    OwnedTensor<float> x = random_tensor({40, h}, random),
                       residual = random_tensor({40, h}, random);
    OwnedTensor<float> weight = random_tensor({h}, random);
    OwnedTensor<float> out({40, h}), sum = residual, in_place = x;
    rms_norm(stream, x.tensor(), weight.tensor(), 1e-6f, out.tensor());
    rms_norm(stream, in_place.tensor(), weight.tensor(), 1e-6f, in_place.tensor());
    EXPECT_TRUE(out.same_bits(in_place));
    for (int64_t t = 0; t < 40; ++t) {
      double squares = 0;
      for (int64_t i = 0; i < h; ++i) squares += static_cast<double>(x.at(t, i)) * x.at(t, i);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(h) + 1e-6f);
      for (int64_t i = 0; i < h; ++i) {
        const double value = x.at(t, i) * scale * weight.values()[static_cast<size_t>(i)];
        EXPECT_NEAR(out.at(t, i), value, 1e-6 * std::abs(value));
      }
    }
    // With a residual it is an addition and a norm, and the row's place does not matter.
    OwnedTensor<float> expected_sum = residual;
    for (size_t i = 0; i < x.values().size(); ++i) expected_sum.values()[i] += x.values()[i];
    OwnedTensor<float> normed({40, h});
    rms_norm(stream, expected_sum.tensor(), weight.tensor(), 1e-6f, normed.tensor());
    for (int64_t t = 0; t < 40; ++t) {
      add_rms_norm(stream, x.tensor().rows(t, t + 1), sum.tensor().rows(t, t + 1), weight.tensor(),
                   1e-6f, out.tensor().rows(t, t + 1));
    }
    EXPECT_TRUE(sum.same_bits(expected_sum));
    EXPECT_TRUE(out.same_bits(normed));
  }
}

TEST_P(ElementwiseTest, SiluAndMul) {
  std::mt19937 random(2);
  ThreadPool pool(2);
  Stream stream(pool, GetParam());
  for (int64_t n : {1, 15, 16, 33, 3072}) {
    OwnedTensor<float> gate_up = random_tensor({9, 2 * n}, random);
    for (int64_t i = 0; i < n; ++i) gate_up.at(3, i) *= 40.0f;
    gate_up.at(4, 0) = -200.0f;
    gate_up.at(5, 0) = 200.0f;
    OwnedTensor<float> out({9, n}), single({9, n});
    silu_and_mul(stream, gate_up.tensor(), out.tensor());
    for (int64_t t = 0; t < 9; ++t) {
      silu_and_mul(stream, gate_up.tensor().rows(t, t + 1), single.tensor().rows(t, t + 1));
      for (int64_t i = 0; i < n; ++i) {
        const double gate = gate_up.at(t, i);
        const double value = gate / (1 + std::exp(-gate)) * gate_up.at(t, n + i);
        EXPECT_NEAR(out.at(t, i), value, 1e-6 * std::abs(value) + 1e-36);
      }
    }
    EXPECT_TRUE(out.same_bits(single));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ElementwiseTest, testing::ValuesIn(supported_isas()), isa_test_name);

TEST(Embedding, ReadsItsShardAndZeroesTheRest) {
  std::mt19937 random(3);
  ThreadPool pool(2);
  Stream stream(pool);
  OwnedTensor<float> rows = random_tensor({10, 24}, random);
  Weight table(DType::kFloat32, 10, 24);
  table.pack_rows(0, rows.tensor());
  OwnedTensor<int32_t> ids({5});
  ids.values() = {100, 109, 99, 110, 104};
  OwnedTensor<float> out({5, 24}, -1.0f);
  embedding(stream, ids.tensor(), table, 100, out.tensor());
  for (int64_t i = 0; i < 24; ++i) {
    EXPECT_EQ(out.at(0, i), rows.at(0, i));
    EXPECT_EQ(out.at(1, i), rows.at(9, i));
    EXPECT_EQ(out.at(2, i), 0.0f);
    EXPECT_EQ(out.at(3, i), 0.0f);
    EXPECT_EQ(out.at(4, i), rows.at(4, i));
  }
}

TEST(GatherRows, CopiesRowsInTheOrderAsked) {
  std::mt19937 random(4);
  ThreadPool pool(2);
  Stream stream(pool);
  OwnedTensor<float> in = random_tensor({6, 11}, random), out({3, 11});
  OwnedTensor<int32_t> rows({3});
  rows.values() = {5, 0, 5};
  gather_rows(stream, in.tensor(), rows.tensor(), out.tensor());
  for (int64_t i = 0; i < 11; ++i) {
    EXPECT_EQ(out.at(0, i), in.at(5, i));
    EXPECT_EQ(out.at(1, i), in.at(0, i));
    EXPECT_EQ(out.at(2, i), in.at(5, i));
  }
}

TEST(ScatterRows, PutsRowsWhereTheyBelongAndLeavesTheRest) {
  std::mt19937 random(5);
  ThreadPool pool(2);
  Stream stream(pool);
  OwnedTensor<float> in = random_tensor({3, 11}, random), out({6, 11}, -1.0f);
  OwnedTensor<int64_t> slots({3});
  slots.values() = {4, 0, 5};
  scatter_rows(stream, in.tensor(), slots.tensor(), out.tensor());
  for (int64_t i = 0; i < 11; ++i) {
    EXPECT_EQ(out.at(4, i), in.at(0, i));
    EXPECT_EQ(out.at(0, i), in.at(1, i));
    EXPECT_EQ(out.at(5, i), in.at(2, i));
    for (const int64_t row : {1, 2, 3}) EXPECT_EQ(out.at(row, i), -1.0f);
  }
}

TEST(ScatterRowsDeathTest, RefusesASlotOutside) {
  ThreadPool pool(1);
  Stream stream(pool);
  OwnedTensor<float> in({1, 3}), out({2, 3});
  OwnedTensor<int64_t> slots({1}, 2);
  EXPECT_DEATH(scatter_rows(stream, in.tensor(), slots.tensor(), out.tensor()),
               "outside the output");
}

TEST(GatherRowsDeathTest, RefusesARowOutside) {
  ThreadPool pool(1);
  Stream stream(pool);
  OwnedTensor<float> in({2, 3}), out({1, 3});
  OwnedTensor<int32_t> rows({1}, 2);
  EXPECT_DEATH(gather_rows(stream, in.tensor(), rows.tensor(), out.tensor()), "outside the input");
}

}  // namespace
}  // namespace quire::ops
