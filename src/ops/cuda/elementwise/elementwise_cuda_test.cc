// The CUDA kernels that pick, norm and gate rows, against plain loops in double precision.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"

namespace quire::ops {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// Of results rounded to dtype.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 5e-3;
    case DType::kFloat16:
      return 7e-4;
    default:
      return 1e-6;
  }
}

class ElementwiseCudaTest : public CudaTest {
 protected:
  std::vector<float> random_rows(DType dtype, int64_t rows, int64_t width) {
    return rounded(dtype, random_values(static_cast<size_t>(rows * width), random()));
  }
};

TEST_F(ElementwiseCudaTest, EmbeddingTakesRowsAndZeros) {
  constexpr int64_t kTableRows = 37;
  constexpr int64_t kFirstId = 100;
  for (const DType dtype : kDTypes) {
    for (const int64_t hidden : {1, 2, 7, 8, 24, 1000, 1024, 1037, 4096, 8200}) {
      for (const int64_t num_tokens : {1, 3, 4, 129}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " hidden " + std::to_string(hidden));
        const auto table = random_rows(dtype, kTableRows, hidden);
        std::vector<int32_t> ids(static_cast<size_t>(num_tokens));
        for (int32_t& id : ids) id = 95 + static_cast<int32_t>(random()() % 47);  // 95 to 141
        DeviceElements device_table(dtype, table);
        DeviceArray<int32_t> device_ids(ids);
        DeviceElements out(dtype, static_cast<size_t>(num_tokens * hidden));
        cuda::embedding(stream(), {dtype, device_ids.data(), num_tokens, device_table.data(),
                                   kTableRows, hidden, kFirstId, out.data()});
        synchronize();
        std::vector<float> expected;
        for (const int32_t id : ids) {
          const int64_t row = id - kFirstId;
          for (int64_t i = 0; i < hidden; ++i) {
            const bool is_inside = row >= 0 && row < kTableRows;
            expected.push_back(is_inside ? table[static_cast<size_t>(row * hidden + i)] : 0.0f);
          }
        }
        ASSERT_EQ(out.download(), expected);
      }
    }
  }
}

TEST_F(ElementwiseCudaTest, GatherRowsTakesRows) {
  for (const DType dtype : kDTypes) {
    for (const int64_t hidden : {1, 6, 520, 1024, 5120}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " hidden " + std::to_string(hidden));
      const std::vector<int32_t> rows = {16, 0, 3, 3, 9};
      const auto in = random_rows(dtype, 17, hidden);
      DeviceElements device_in(dtype, in);
      DeviceArray<int32_t> device_rows(rows);
      DeviceElements out(dtype, rows.size() * static_cast<size_t>(hidden));
      cuda::gather_rows(stream(),
                        {dtype, device_in.data(), hidden, device_rows.data(), 5, out.data()});
      synchronize();
      std::vector<float> expected;
      for (const int32_t row : rows) {
        const auto begin = in.begin() + row * hidden;
        expected.insert(expected.end(), begin, begin + hidden);
      }
      ASSERT_EQ(out.download(), expected);
    }
  }
}

// Columns of a wider matrix, whose others stay as they are.
TEST_F(ElementwiseCudaTest, GatherRowsPutsRowsSideBySide) {
  for (const DType dtype : kDTypes) {
    for (const int64_t hidden : {8, 24, 1024, 5120}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " hidden " + std::to_string(hidden));
      const std::vector<int32_t> rows = {4, 0, 4};
      const auto in = random_rows(dtype, 5, hidden);
      const auto before = random_rows(dtype, 3, 3 * hidden);
      DeviceElements device_in(dtype, in);
      DeviceArray<int32_t> device_rows(rows);
      DeviceElements out(dtype, before);
      auto* const middle =
          static_cast<std::byte*>(out.data()) + hidden * static_cast<int64_t>(size_of(dtype));
      cuda::gather_rows(stream(), {.dtype = dtype,
                                   .in = device_in.data(),
                                   .hidden = hidden,
                                   .rows = device_rows.data(),
                                   .num_rows = 3,
                                   .out = middle,
                                   .out_stride = 3 * hidden});
      synchronize();
      std::vector<float> expected = before;
      for (int64_t i = 0; i < 3; ++i) {
        std::copy_n(in.begin() + rows[static_cast<size_t>(i)] * hidden, hidden,
                    expected.begin() + (3 * i + 1) * hidden);
      }
      ASSERT_EQ(out.download(), expected);
    }
  }
}

TEST_F(ElementwiseCudaTest, ScatterRowsPutsRowsInTheirPlaces) {
  for (const DType dtype : kDTypes) {
    for (const int64_t hidden : {1, 6, 520, 1024, 5120}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " hidden " + std::to_string(hidden));
      const std::vector<int64_t> slots = {16, -1, 3, 0};
      const auto in = random_rows(dtype, 4, hidden);
      const auto before = random_rows(dtype, 17, hidden);
      DeviceElements device_in(dtype, in);
      DeviceArray<int64_t> device_slots(slots);
      DeviceElements out(dtype, before);
      cuda::scatter_rows(stream(),
                         {dtype, device_in.data(), hidden, device_slots.data(), 4, out.data()});
      synchronize();
      std::vector<float> expected = before;
      for (size_t i = 0; i < slots.size(); ++i) {
        if (slots[i] < 0) continue;
        std::copy_n(in.begin() + static_cast<int64_t>(i) * hidden, hidden,
                    expected.begin() + slots[i] * hidden);
      }
      ASSERT_EQ(out.download(), expected);
    }
  }
}

TEST_F(ElementwiseCudaTest, GatherColumnsTakesColumnsAndMinusInfinity) {
  constexpr int64_t kIn = 40;
  constexpr int64_t kInStride = 48;
  for (const int64_t num_columns : {1, 40, 131, 5000}) {
    for (const int64_t rows : {1, 3, 70}) {
      const int64_t out_stride = num_columns + 8 - num_columns % 8;
      std::vector<int32_t> columns(static_cast<size_t>(num_columns));
      for (int32_t& column : columns) {
        column = static_cast<int32_t>(random()() % (kIn + 20)) - 20;
        column = std::max(column, -1);
      }
      const auto in = random_values(static_cast<size_t>(rows * kInStride), random());
      const auto before = random_values(static_cast<size_t>(rows * out_stride), random());
      DeviceArray<float> device_in(in);
      DeviceArray<int32_t> device_columns(columns);
      DeviceArray<float> out(before);
      cuda::gather_columns(stream(), {device_in.data(), kInStride, device_columns.data(),
                                      num_columns, rows, out.data(), out_stride});
      synchronize();
      std::vector<float> expected = before;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < num_columns; ++i) {
          const int32_t column = columns[static_cast<size_t>(i)];
          expected[static_cast<size_t>(row * out_stride + i)] =
              column < 0 ? -std::numeric_limits<float>::infinity()
                         : in[static_cast<size_t>(row * kInStride + column)];
        }
      }
      ASSERT_EQ(out.download(), expected);
    }
  }
}

TEST_F(ElementwiseCudaTest, ResolveTokensFillsInAndNotes) {
  DeviceArray<int32_t> token_ids(std::vector<int32_t>{11, 0, 13, 0, 15, 16});
  DeviceArray<int32_t> sources(std::vector<int32_t>{-1, 2, -1, 0, -1, 1});
  DeviceArray<int32_t> sampled(std::vector<int32_t>{70, kNoToken, 72});
  DeviceArray<int64_t> slots(std::vector<int64_t>{4, 0, -1, 2, 6, 5});
  DeviceArray<int32_t> cached_ids(std::vector<int32_t>(8, 9));
  cuda::resolve_tokens(stream(), {.token_ids = token_ids.data(),
                                  .sources = sources.data(),
                                  .sampled = sampled.data(),
                                  .slot_mapping = slots.data(),
                                  .cached_ids = cached_ids.data(),
                                  .num_tokens = 6});
  synchronize();
  EXPECT_EQ(token_ids.download(), (std::vector<int32_t>{11, 72, 13, 70, 15, 0}));
  EXPECT_EQ(cached_ids.download(), (std::vector<int32_t>{72, 9, 70, 9, 11, 0, 15, 9}));
}

TEST_F(ElementwiseCudaTest, NothingToDo) {
  cuda::embedding(stream(), {DType::kFloat32, nullptr, 0, nullptr, 5, 8, 0, nullptr});
  cuda::resolve_tokens(stream(), {});
  cuda::gather_rows(stream(), {DType::kFloat32, nullptr, 8, nullptr, 0, nullptr});
  cuda::scatter_rows(stream(), {DType::kFloat32, nullptr, 8, nullptr, 0, nullptr});
  cuda::gather_columns(stream(), {nullptr, 8, nullptr, 8, 0, nullptr, 8});
  cuda::rms_norm(stream(), {DType::kFloat32, nullptr, nullptr, nullptr, 1e-6f, 0, 8, nullptr});
  cuda::silu_and_mul(stream(), {DType::kFloat32, nullptr, 0, 8, nullptr});
  synchronize();
}

struct NormCase {
  DType dtype;
  int64_t rows;
  int64_t n;
};

// What the norm makes of values that are in dtype already.
std::vector<float> expected_norm(const NormCase& c, const std::vector<float>& x,
                                 const std::vector<float>& weight, float eps) {
  std::vector<float> result(x.size());
  for (int64_t row = 0; row < c.rows; ++row) {
    double sum = 0;
    for (int64_t i = 0; i < c.n; ++i) {
      const double value = x[static_cast<size_t>(row * c.n + i)];
      sum += value * value;
    }
    const double scale = 1 / std::sqrt(sum / static_cast<double>(c.n) + eps);
    for (int64_t i = 0; i < c.n; ++i) {
      const auto at = static_cast<size_t>(row * c.n + i);
      result[at] = static_cast<float>(x[at] * scale * weight[static_cast<size_t>(i)]);
    }
  }
  return result;
}

std::vector<NormCase> norm_cases() {
  std::vector<NormCase> cases;
  for (const DType dtype : kDTypes) {
    for (const int64_t n :
         {1, 5, 8, 64, 128, 1000, 1023, 1024, 2560, 4096, 4104, 8192, 12296, 16384, 16392, 20001}) {
      for (const int64_t rows : {1, 3, 130}) cases.push_back({dtype, rows, n});
    }
    cases.push_back({dtype, 5000, 1024});
  }
  return cases;
}

TEST_F(ElementwiseCudaTest, RmsNorm) {
  constexpr float kEps = 1e-6f;
  for (const NormCase& c : norm_cases()) {
    SCOPED_TRACE(std::string(name_of(c.dtype)) + " " + std::to_string(c.rows) + " rows of " +
                 std::to_string(c.n));
    const auto x = random_rows(c.dtype, c.rows, c.n);
    const auto weight = random_values(static_cast<size_t>(c.n), random());
    DeviceElements device_x(c.dtype, x);
    DeviceArray<float> device_weight(weight);
    DeviceElements out(c.dtype, x.size());
    const CudaRmsNorm args{c.dtype, device_x.data(), nullptr, device_weight.data(),
                           kEps,    c.rows,          c.n,     out.data()};
    cuda::rms_norm(stream(), args);
    synchronize();
    ASSERT_TRUE(is_close(out.download(), expected_norm(c, x, weight, kEps), tolerance_of(c.dtype)));
    CudaRmsNorm in_place = args;
    in_place.out = device_x.data();
    cuda::rms_norm(stream(), in_place);
    synchronize();
    ASSERT_EQ(device_x.download_bytes(), out.download_bytes());
  }
}

// Columns of a wider matrix, whose others stay as they are.
TEST_F(ElementwiseCudaTest, RmsNormWritesRowsBesideOthers) {
  constexpr float kEps = 1e-6f;
  for (const NormCase& c : norm_cases()) {
    if (c.n % 8 != 0) continue;  // rows begin at multiples of 8 elements
    SCOPED_TRACE(std::string(name_of(c.dtype)) + " " + std::to_string(c.rows) + " rows of " +
                 std::to_string(c.n));
    const int64_t stride = 2 * c.n;
    const auto x = random_rows(c.dtype, c.rows, c.n);
    const auto weight = random_values(static_cast<size_t>(c.n), random());
    const auto before = random_rows(c.dtype, c.rows, stride);
    DeviceElements device_x(c.dtype, x);
    DeviceArray<float> device_weight(weight);
    DeviceElements alone(c.dtype, x.size());
    DeviceElements wide(c.dtype, before);
    CudaRmsNorm args{c.dtype, device_x.data(), nullptr, device_weight.data(),
                     kEps,    c.rows,          c.n,     alone.data()};
    cuda::rms_norm(stream(), args);
    args.out = wide.data();
    args.out_stride = stride;
    cuda::rms_norm(stream(), args);
    synchronize();
    std::vector<float> expected = before;
    const auto normed = alone.download();
    for (int64_t row = 0; row < c.rows; ++row) {
      std::copy_n(normed.begin() + row * c.n, c.n, expected.begin() + row * stride);
    }
    ASSERT_EQ(wide.download(), expected);
  }
}

TEST_F(ElementwiseCudaTest, RmsNormAddsToTheResidual) {
  constexpr float kEps = 1e-5f;
  for (const NormCase& c : norm_cases()) {
    SCOPED_TRACE(std::string(name_of(c.dtype)) + " " + std::to_string(c.rows) + " rows of " +
                 std::to_string(c.n));
    const auto x = random_rows(c.dtype, c.rows, c.n);
    const auto residual = random_rows(c.dtype, c.rows, c.n);
    const auto weight = random_values(static_cast<size_t>(c.n), random());
    std::vector<float> sum(x.size());
    for (size_t i = 0; i < x.size(); ++i) sum[i] = x[i] + residual[i];
    sum = rounded(c.dtype, sum);
    for (const bool in_place : {false, true}) {
      DeviceElements device_x(c.dtype, x);
      DeviceElements device_residual(c.dtype, residual);
      DeviceArray<float> device_weight(weight);
      DeviceElements apart(c.dtype, x.size());
      DeviceElements& out = in_place ? device_x : apart;
      cuda::rms_norm(stream(), {c.dtype, device_x.data(), device_residual.data(),
                                device_weight.data(), kEps, c.rows, c.n, out.data()});
      synchronize();
      ASSERT_EQ(device_residual.download(), sum);
      ASSERT_TRUE(
          is_close(out.download(), expected_norm(c, sum, weight, kEps), tolerance_of(c.dtype)));
    }
  }
}

// A row's bits do not depend on the rows beside it.
TEST_F(ElementwiseCudaTest, RmsNormOfARowIsTheSameInAnyBatch) {
  constexpr int64_t kRows = 4000;
  for (const int64_t n : {256, 1024, 4096, 8192}) {
    const DType dtype = DType::kFloat32;
    DeviceElements x(dtype, random_rows(dtype, kRows, n));
    DeviceArray<float> weight(random_values(static_cast<size_t>(n), random()));
    DeviceElements all(dtype, x.size());
    DeviceElements one(dtype, static_cast<size_t>(n));
    cuda::rms_norm(stream(),
                   {dtype, x.data(), nullptr, weight.data(), 1e-6f, kRows, n, all.data()});
    const int64_t last = (kRows - 1) * n;
    cuda::rms_norm(stream(), {dtype, static_cast<float*>(x.data()) + last, nullptr, weight.data(),
                              1e-6f, 1, n, one.data()});
    synchronize();
    const std::vector<float> results = all.download();
    ASSERT_EQ(std::vector<float>(results.begin() + last, results.end()), one.download());
  }
}

TEST_F(ElementwiseCudaTest, SiluAndMul) {
  for (const DType dtype : kDTypes) {
    for (const int64_t inner : {1, 7, 8, 256, 1000, 1003, 3072, 12288}) {
      for (const int64_t rows : {1, 2, 63}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(rows) + " rows of " +
                     std::to_string(inner));
        auto in =
            rounded(dtype, random_values(static_cast<size_t>(rows * 2 * inner), random(), 4.0f));
        // The exponential overflows.
        in[0] = -120;
        DeviceElements device_in(dtype, in);
        DeviceElements out(dtype, static_cast<size_t>(rows * inner));
        cuda::silu_and_mul(stream(), {dtype, device_in.data(), rows, inner, out.data()});
        synchronize();
        std::vector<float> expected;
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t i = 0; i < inner; ++i) {
            const double gate = in[static_cast<size_t>(row * 2 * inner + i)];
            const double up = in[static_cast<size_t>((row * 2 + 1) * inner + i)];
            expected.push_back(static_cast<float>(gate / (1 + std::exp(-gate)) * up));
          }
        }
        ASSERT_TRUE(is_close(out.download(), expected, tolerance_of(dtype)));
      }
    }
  }
}

}  // namespace
}  // namespace quire::ops
