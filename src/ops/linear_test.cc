#include "ops/linear.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/op_test_util.h"

namespace quire::ops {
namespace {

struct Case {
  int64_t rows, n, k;
};

// What a linear op computes, in double, and the sum of the products' magnitudes.
struct Expected {
  double value, magnitude;
};

Expected expected(const float* in, const std::vector<float>& row) {
  Expected sum = {0, 0};
  for (size_t i = 0; i < row.size(); ++i) {
    const double product = static_cast<double>(in[i]) * row[i];
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

std::vector<float> row_of(const Weight& weight, int64_t n) {
  std::vector<float> row(static_cast<size_t>(weight.k()));
  weight.unpack_row(n, row.data());
  return row;
}

Weight random_weight(WeightFormat format, int64_t n, int64_t k, std::mt19937& random) {
  OwnedTensor<float> rows = random_tensor({n, k}, random);
  Weight weight(format, n, k);
  if (format.has_scales()) {
    OwnedTensor<Float8E4M3> stored({n, k});
    std::transform(rows.values().begin(), rows.values().end(), stored.values().begin(),
                   [](float value) { return Float8E4M3(100 * value); });
    weight.pack_rows(0, stored.tensor());
    OwnedTensor<float> scales = random_tensor({n, 1}, random);
    weight.set_scales(0, scales.tensor());
    return weight;
  }
  weight.pack_rows(0, rows.tensor());
  return weight;
}

const WeightFormat kFormats[] = {DType::kFloat32, DType::kBFloat16, WeightFormat::float8()};

class LinearTest : public IsaTest {
 protected:
  // Rounding activations to bfloat16 costs 2^-9 a product; sums of float32 hardly count beside.
  double tolerance(WeightFormat format) const {
    return format == DType::kBFloat16 && GetParam() >= Isa::kAvx512 ? 1.0 / 256 : 2e-6;
  }
};

TEST_P(LinearTest, AgreesWithAPlainSum) {
  std::mt19937 random(1);
  ThreadPool pool(2);
  Stream stream(pool, GetParam());
  for (const WeightFormat& format : kFormats) {
    for (const Case& c :
         {Case{1, 1, 1}, Case{1, 64, 32}, Case{2, 63, 33}, Case{3, 65, 7}, Case{5, 200, 130},
          Case{6, 16, 1500}, Case{13, 129, 2051}, Case{17, 128, 96}, Case{31, 70, 1058},
          Case{33, 64, 1024}, Case{100, 70, 64}}) {
      OwnedTensor<float> in = random_tensor({c.rows, c.k}, random);
      OwnedTensor<float> bias = random_tensor({c.n}, random);
      Weight weight = random_weight(format, c.n, c.k, random);
      OwnedTensor<float> plain({c.rows, c.n}, -99.0f), shifted({c.rows, c.n}, -99.0f);
      linear(stream, in.tensor(), weight, Tensor(), plain.tensor());
      linear(stream, in.tensor(), weight, bias.tensor(), shifted.tensor());
      for (int64_t n = 0; n < c.n; ++n) {
        const std::vector<float> numbers = row_of(weight, n);
        const double offset = bias.values()[static_cast<size_t>(n)];
        for (int64_t t = 0; t < c.rows; ++t) {
          const Expected sum = expected(&in.at(t, 0), numbers);
          ASSERT_NEAR(plain.at(t, n), sum.value, tolerance(format) * sum.magnitude + 1e-30)
              << c.rows << "x" << c.n << "x" << c.k << " at " << t << ", " << n;
          ASSERT_NEAR(shifted.at(t, n), sum.value + offset,
                      tolerance(format) * (sum.magnitude + std::abs(offset)) + 1e-30)
              << c.rows << "x" << c.n << "x" << c.k << " at " << t << ", " << n << ", with a bias";
        }
      }
    }
  }
}

// Every row computed by itself, and among others at any place, on any number of threads: the same
// bits.
TEST_P(LinearTest, ARowDoesNotDependOnItsNeighbours) {
  std::mt19937 random(2);
  ThreadPool one(1), three(3);
  Stream alone(one, GetParam()), together(three, GetParam());
  for (const WeightFormat& format : kFormats) {
    for (const Case& c : {Case{150, 130, 1300}, Case{37, 64, 2500}, Case{1100, 20, 70}}) {
      OwnedTensor<float> in = random_tensor({c.rows, c.k}, random);
      OwnedTensor<float> bias = random_tensor({c.n}, random);
      Weight weight = random_weight(format, c.n, c.k, random);
      OwnedTensor<float> single({c.rows, c.n}), batched({c.rows, c.n});
      for (int64_t t = 0; t < c.rows; ++t) {
        linear(alone, in.tensor().rows(t, t + 1), weight, bias.tensor(),
               single.tensor().rows(t, t + 1));
      }
      linear(together, in.tensor(), weight, bias.tensor(), batched.tensor());
      EXPECT_TRUE(single.same_bits(batched));
      for (int64_t t = 0; t < c.rows;) {
        const int64_t end = std::min(c.rows, t + random_int(1, 40, random));
        linear(together, in.tensor().rows(t, end), weight, bias.tensor(),
               batched.tensor().rows(t, end));
        t = end;
      }
      EXPECT_TRUE(single.same_bits(batched));
    }
  }
}

// Numbers too small to be normal may be taken for zeros (AMX does so): wherever a sum meets one it
// is off by less than the least normal number. A row's bits still do not depend on its neighbours.
TEST_P(LinearTest, SumsBelowTheNormalRangeAreNearAndTheSameAmongOtherRows) {
  std::mt19937 random(4);
  ThreadPool pool(2);
  Stream stream(pool, GetParam());
  constexpr int64_t kRows = 40, kN = 70, kK = 1300;
  constexpr double kLeastNormal = std::numeric_limits<float>::min();
  OwnedTensor<float> values = random_tensor({kN, kK}, random);
  for (float& value : values.values()) value *= 1e-20f;
  Weight weight(DType::kBFloat16, kN, kK);
  weight.pack_rows(0, values.tensor());
  // Products from far below the normal range to those whose sums cross its end.
  OwnedTensor<float> in = random_tensor({kRows, kK}, random);
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < kK; ++i) in.at(t, i) *= std::pow(10.0f, -12.0f - float(t % 10));
  }
  for (const float offset : {0.0f, 1e-40f}) {
    OwnedTensor<float> bias({kN}, offset);
    OwnedTensor<float> single({kRows, kN}), batched({kRows, kN});
    for (int64_t t = 0; t < kRows; ++t) {
      linear(stream, in.tensor().rows(t, t + 1), weight, bias.tensor(),
             single.tensor().rows(t, t + 1));
      for (int64_t n = 0; n < kN; ++n) {
        const Expected sum = expected(&in.at(t, 0), row_of(weight, n));
        ASSERT_NEAR(single.at(t, n), sum.value + static_cast<double>(offset),
                    tolerance(DType::kBFloat16) * sum.magnitude + 3 * kK * kLeastNormal);
      }
    }
    linear(stream, in.tensor(), weight, bias.tensor(), batched.tensor());
    EXPECT_TRUE(single.same_bits(batched));
  }
}

// Every number of float8 meets inputs in every lane. A sum is one chain over K, in order, of
// multiply-adds that round once with vector instructions and twice without; the scale is multiplied
// and the bias added last.
TEST_P(LinearTest, Float8SumsAreChainsOfTheNumbersThemselves) {
  std::mt19937 random(5);
  ThreadPool pool(2);
  Stream stream(pool, GetParam());
  constexpr int64_t kN = 130, kK = 1100;
  OwnedTensor<Float8E4M3> stored({kN, kK});
  for (int64_t n = 0; n < kN; ++n) {
    for (int64_t i = 0; i < kK; ++i) {
      const auto bits = static_cast<uint8_t>(n * 7 + i);
      stored.at(n, i).bits = (bits & 0x7fu) == 0x7fu ? 0 : bits;  // not NaN
    }
  }
  Weight weight(WeightFormat::float8(), kN, kK);
  weight.pack_rows(0, stored.tensor());
  OwnedTensor<float> scales = random_tensor({kN, 1}, random);
  weight.set_scales(0, scales.tensor());
  OwnedTensor<float> bias = random_tensor({kN}, random);
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 20}) {
    OwnedTensor<float> in = random_tensor({rows, kK}, random);
    OwnedTensor<float> out({rows, kN}), chains({rows, kN});
    linear(stream, in.tensor(), weight, bias.tensor(), out.tensor());
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t n = 0; n < kN; ++n) {
        float sum = 0;
        for (int64_t i = 0; i < kK; ++i) {
          const auto w = static_cast<float>(stored.at(n, i));
          sum = GetParam() == Isa::kScalar ? sum + in.at(t, i) * w : std::fma(in.at(t, i), w, sum);
        }
        const float scaled = sum * scales.at(n, 0);
        chains.at(t, n) = scaled + bias.values()[static_cast<size_t>(n)];
      }
    }
    EXPECT_TRUE(out.same_bits(chains)) << rows << " rows";
  }
}

TEST_P(LinearTest, ANanOfFloat8MakesNanOfItsOutputAndOfNoOther) {
  std::mt19937 random(6);
  ThreadPool pool(2);
  Stream stream(pool, GetParam());
  constexpr int64_t kN = 70, kK = 600, kWhere = 37;
  OwnedTensor<float> scales({kN, 1}, 1.0f);
  for (const uint8_t bits : {0x7f, 0xff}) {
    OwnedTensor<Float8E4M3> stored({kN, kK}, Float8E4M3(448.0f));
    stored.at(kWhere, 3).bits = bits;  // in the first of two blocks of steps
    Weight weight(WeightFormat::float8(), kN, kK);
    weight.pack_rows(0, stored.tensor());
    weight.set_scales(0, scales.tensor());
    for (const int64_t rows : {1, 6}) {
      OwnedTensor<float> in = random_tensor({rows, kK}, random);
      OwnedTensor<float> out({rows, kN});
      linear(stream, in.tensor(), weight, Tensor(), out.tensor());
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t n = 0; n < kN; ++n) EXPECT_EQ(std::isnan(out.at(t, n)), n == kWhere);
      }
    }
  }
}

TEST_P(LinearTest, TakesStridedRowsAndWritesOnlyItsColumns) {
  std::mt19937 random(3);
  ThreadPool pool(1);
  Stream stream(pool, GetParam());
  OwnedTensor<float> wide = random_tensor({7, 100}, random);
  OwnedTensor<float> narrow({7, 40});
  for (int64_t t = 0; t < 7; ++t) {
    for (int64_t i = 0; i < 40; ++i) narrow.at(t, i) = wide.at(t, 30 + i);
  }
  Weight weight = random_weight(DType::kBFloat16, 33, 40, random);
  OwnedTensor<float> out({7, 33}), wide_out({7, 90}, -1.0f);
  linear(stream, narrow.tensor(), weight, Tensor(), out.tensor());
  linear(stream, wide.tensor().columns(30, 70), weight, Tensor(),
         wide_out.tensor().columns(10, 43));
  for (int64_t t = 0; t < 7; ++t) {
    for (int64_t n = 0; n < 90; ++n) {
      EXPECT_EQ(wide_out.at(t, n), n >= 10 && n < 43 ? out.at(t, n - 10) : -1.0f);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, LinearTest, testing::ValuesIn(supported_isas()), isa_test_name);

TEST(LinearDeathTest, NamesTheArgumentOfTheWrongShape) {
  ThreadPool pool(1);
  Stream stream(pool);
  Weight weight(DType::kFloat32, 8, 4);
  OwnedTensor<float> in({2, 5}), out({2, 8});
  EXPECT_DEATH(linear(stream, in.tensor(), weight, Tensor(), out.tensor()),
               "linear: argument `in` must be float32\\[T, K=4\\], not float32\\[2, 5\\]");
}

}  // namespace
}  // namespace quire::ops
