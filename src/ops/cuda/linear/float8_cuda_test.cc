// Products of float8 weights, against sums in double of the same rounded numbers.
#include <cmath>
#include <functional>
#include <string>

#include "base/ceil_div.h"
#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/float8.cuh"
#include "ops/cuda/linear/float8_test_util.h"

namespace quire::ops {
namespace {

struct Float8Case {
  int64_t rows;
  int64_t n;
  int64_t k;
  int64_t group_size = 0;
  DType dtype = DType::kBFloat16;
  bool float_out = false;
  bool bias = false;
  bool silu_and_mul = false;
  int64_t in_gap = 0;  // elements between rows; multiples of 8
  int64_t out_gap = 0;
};

std::string text_of(const Float8Case& c) {
  return std::to_string(c.rows) + " rows of " + std::to_string(c.n) + " x " + std::to_string(c.k) +
         " " + std::string(name_of(c.dtype)) + (c.group_size != 0 ? ", blocks" : "") +
         (c.float_out ? ", float out" : "") + (c.bias ? ", bias" : "") +
         (c.silu_and_mul ? ", silu" : "");
}

// A number and how far off it may be.
struct Bounded {
  double value;
  double error;
};

class Float8LinearCudaTest : public Float8CudaTest {
 protected:
  // With `plan`, quire's kernel cuts the product that way; else linear() does all.
  void expect_right(const Float8Case& c, const cuda::Float8Plan* plan = nullptr) {
    SCOPED_TRACE(text_of(c));
    const int64_t in_stride = c.k + c.in_gap;
    const int64_t columns = c.silu_and_mul ? c.n / 2 : c.n;
    const int64_t out_stride = round_up(columns, 8) + c.out_gap;
    const DType out_dtype = c.float_out ? DType::kFloat32 : c.dtype;
    const std::vector<float> in = random_activations(c.dtype, c.rows, in_stride, random());
    const std::vector<float> bias = random_values(index_of(c.n), random());
    Float8Weight weight(c.n, c.k, c.group_size, random());
    DeviceElements in_device(c.dtype, in);
    DeviceArray<float> bias_device(bias);
    DeviceElements out_device(out_dtype, index_of(c.rows * out_stride));
    DeviceArray<std::byte> scratch(index_of(linear_scratch_bytes(c.rows, c.k)));
    const CudaLinear args = {.dtype = c.dtype,
                             .in = in_device.data(),
                             .in_stride = in_stride,
                             .weight = weight.view(),
                             .rows = c.rows,
                             .n = c.n,
                             .k = c.k,
                             .bias = c.bias ? bias_device.data() : nullptr,
                             .out = out_device.data(),
                             .out_stride = out_stride,
                             .out_dtype = out_dtype,
                             .silu_and_mul = c.silu_and_mul,
                             .scratch = scratch.data()};
    run(args, plan);
    const auto bytes = out_device.download_bytes();
    const std::vector<float> out = out_device.download();
    const RoundedRows x = round_rows(in, c.rows, c.k, in_stride, c.group_size);
    const auto dot = [&](int64_t row, int64_t column) {
      return product_of(x, weight, c, row, column, bias);
    };
    double worst = 0;
    for (int64_t row = 0; row < c.rows; ++row) {
      const float* const out_row = &out[index_of(row * out_stride)];
      // All columns of few rows, a moving sample of the columns of many.
      const int64_t step = std::max<int64_t>(1, c.rows * columns * c.k / 4'000'000);
      for (int64_t column = row % step; column < columns; column += step) {
        Bounded expected = dot(row, column);
        if (c.silu_and_mul) expected = activated(expected, dot(row, columns + column));
        const double rounding = c.float_out ? 1e-6 : (c.dtype == DType::kFloat16 ? 6e-4 : 4.5e-3);
        const double bound = expected.error + rounding * std::abs(expected.value) + 1e-7;
        const double error = std::abs(out_row[column] - expected.value);
        ASSERT_TRUE(error <= bound)
            << "row " << row << ", column " << column << " is " << out_row[column] << ", not "
            << expected.value << " to within " << bound;
        worst = std::max(worst, error / bound);
      }
      for (int64_t column = 0; column < columns; ++column) {
        ASSERT_FALSE(std::isnan(out_row[column])) << "row " << row << ", column " << column;
      }
      for (int64_t column = columns; column < out_stride; ++column) {
        ASSERT_TRUE(std::isnan(out_row[column])) << "row " << row << ", behind its end: " << column;
      }
    }
    worst_ = std::max(worst_, worst);
    RecordProperty("greatest_share_of_the_bound", std::to_string(worst_));
    out_device.poison();
    scratch.poison();
    run(args, plan);
    EXPECT_EQ(bytes, out_device.download_bytes()) << "the same arguments give other bits";
  }

  void run(const CudaLinear& args, const cuda::Float8Plan* plan = nullptr) {
    if (plan == nullptr) {
      cuda::linear(stream(), args);
    } else {
      const Float8Activations activations = cuda::float8_activations(args, false);
      cuda::round_activations(stream(), args, activations);
      cuda::float8_linear(stream(), args, activations, *plan);
    }
    synchronize();
  }

 private:
  // The tensor cores keep 13 bits behind the point of the greatest product of 32, so the error of a
  // sum follows the vectors' norms.
  static Bounded product_of(const RoundedRows& x, const Float8Weight& weight, const Float8Case& c,
                            int64_t row, int64_t column, const std::vector<float>& bias) {
    constexpr double kErrorOfNorms = 3e-4;
    double sum = 0;
    double in_norm = 0;
    double weight_norm = 0;
    const float* numbers = &x.numbers[index_of(row * c.k)];
    const float* weights = weight.row(column);
    const int64_t scales_of_row = c.group_size != 0 ? c.k / 128 : 1;
    for (int64_t first = 0; first < c.k; first += 128) {
      double part = 0;
      double in_part = 0;
      double weight_part = 0;
      for (int64_t i = first; i < first + 128; ++i) {
        part += static_cast<double>(numbers[i]) * weights[i];
        in_part += static_cast<double>(numbers[i]) * numbers[i];
        weight_part += static_cast<double>(weights[i]) * weights[i];
      }
      const int64_t block = first / 128;
      const double in_scale =
          x.scales[index_of(row * scales_of_row + (c.group_size != 0 ? block : 0))];
      const double weight_scale = weight.scale(column, block);
      sum += part * in_scale * weight_scale;
      in_norm += in_part * in_scale * in_scale;
      weight_norm += weight_part * weight_scale * weight_scale;
    }
    const double error = kErrorOfNorms * std::sqrt(in_norm * weight_norm);
    const double added = c.bias ? static_cast<double>(bias[index_of(column)]) : 0.0;
    // cuBLAS adds a bias of the output's type, and rounds a product of 16 bits before the
    // activation.
    const bool rounds = !c.float_out || c.silu_and_mul;
    const double unit = c.dtype == DType::kFloat16 ? 5e-4 : 4e-3;
    const double rounding = rounds ? unit * (std::abs(added) + std::abs(sum + added)) : 0.0;
    return {sum + added, error + rounding};
  }
  static Bounded activated(const Bounded& gate, const Bounded& up) {
    const double silu = gate.value / (1 + std::exp(-gate.value));
    const double silu_error = 1.1 * gate.error + 1e-6;
    return {silu * up.value,
            silu_error * std::abs(up.value) + std::abs(silu) * up.error + silu_error * up.error};
  }

  double worst_ = 0;
};

TEST_F(Float8LinearCudaTest, AwkwardSizes) {
  for (const int64_t group : kFloat8Groups) {
    for (const DType dtype : kHalfTypes) {
      expect_right({1, 16, 128, group, dtype});
      expect_right({1, 16, 128, group, dtype, false, true, true});
      expect_right({3, 80, 256, group, dtype, false, true});
      expect_right({17, 144, 384, group, dtype, true, true, false, 8, 16});
      expect_right({65, 144, 640, group, dtype, false, false, true, 24, 8});
      expect_right({100, 272, 1152, group, dtype, true, false, true});
      expect_right({129, 272, 512, group, dtype, false, true});
      expect_right({300, 208, 128, group, dtype, true, true});
      expect_right({300, 208, 1024, group, dtype, true});
      expect_right({513, 528, 512, group, dtype, false, true, true, 8, 8});
      expect_right({600, 400, 384, group, dtype, false, false, false, 8, 8});
    }
  }
}

// Every number of rows around the edges of tiles.
TEST_F(Float8LinearCudaTest, RowsOfSteps) {
  for (const int64_t rows : {1,  2,  4,  7,   8,   9,   15,  16,  17,  31,  32,  33,  48,  63,
                             64, 65, 96, 127, 128, 129, 191, 192, 255, 256, 257, 383, 512, 600}) {
    for (const int64_t group : kFloat8Groups) {
      expect_right({rows, 384, 640, group, DType::kBFloat16, false, rows % 2 == 0});
      expect_right({rows, 352, 512, group, DType::kFloat16, false, rows % 2 == 1, true});
      expect_right({rows, 272, 1024, group, DType::kBFloat16, true});
    }
  }
}

TEST_F(Float8LinearCudaTest, ShapesOfModels) {
  for (const int64_t group : kFloat8Groups) {
    for (const int64_t rows : {1, 16, 64, 128, 256}) {
      expect_right({rows, 4096, 1024, group});
      expect_right({rows, 1024, 3072, group});
      expect_right({rows, 6144, 1024, group, DType::kBFloat16, false, false, true});
      expect_right({rows, 512, 4096, group});
      expect_right({rows, 256, 12288, group});
    }
    expect_right({64, 28672, 256, group, DType::kBFloat16, false, false, true});
    expect_right({3, 64, 14336, group});
    expect_right({4, 20000, 1024, group, DType::kBFloat16, true});
    expect_right({150, 20000, 512, group, DType::kBFloat16, true});
  }
}

// Rows that cuBLAS multiplies piece by piece.
TEST_F(Float8LinearCudaTest, MoreRowsThanTheScratchMemoryHolds) {
  for (const int64_t group : kFloat8Groups) {
    expect_right({2049, 24576, 512, group, DType::kBFloat16, false, true, true});
  }
}

// Every kernel and split of k, whichever the rules pick, with few stages and with many.
TEST_F(Float8LinearCudaTest, Plans) {
  for (const int tile_rows : {8, 16, 32, 64}) {
    for (const int tile_columns : {64, 128}) {
      if (tile_columns == 128 && tile_rows < 64) continue;
      for (const int splits : {1, 2, 4, 8}) {
        for (const int64_t group : kFloat8Groups) {
          SCOPED_TRACE("tiles of " + std::to_string(tile_rows) + " x " +
                       std::to_string(tile_columns) + ", " + std::to_string(splits) + " splits");
          cuda::Float8Plan plan = {tile_rows, tile_columns, splits, 1 + splits % 2};
          expect_right({2 * tile_rows - 3, 336, 1664, group, DType::kBFloat16, false, true}, &plan);
          plan.num_stages = 5;
          expect_right({tile_rows, 528, 896, group, DType::kFloat16, splits == 2, true, true, 8, 8},
                       &plan);
        }
      }
    }
  }
}

cuda::Float8Plan float8_plan_of(int64_t rows, int64_t n, int64_t k) {
  CudaLinear args = {};
  args.rows = rows;
  args.n = n;
  args.k = k;
  args.weight.format = WeightFormat::float8();
  return cuda::float8_plan(args);
}

// Of 64 rows: no width has a second turn of a few blocks where wide tiles need none.
TEST(Float8PlanTest, BlocksAreOnTheDeviceAtOnce) {
  constexpr int64_t kMultiprocessors = 132;
  constexpr int64_t kWidest = 2 * kMultiprocessors * 128;
  for (int64_t n = 1024; n <= kWidest; n += 16) {
    const cuda::Float8Plan plan = float8_plan_of(64, n, 4096);
    const int64_t of_multiprocessor = plan.tile_columns == 64 ? 3 : 2;
    EXPECT_LE(ceil_div(n, int64_t{plan.tile_columns}) * plan.splits,
              of_multiprocessor * kMultiprocessors)
        << n;
  }
}

// cuBLAS multiplies many rows, rather than that quire's kernel stands in for it unnoticed.
TEST_F(Float8LinearCudaTest, CublasHasTheProducts) {
  for (const int64_t group : kFloat8Groups) {
    for (const DType out_dtype : {DType::kBFloat16, DType::kFloat32}) {
      constexpr int64_t kRows = 384;
      constexpr int64_t kSize = 1024;
      Float8Weight weight(kSize, kSize, group, random());
      DeviceElements in(DType::kBFloat16,
                        random_activations(DType::kBFloat16, kRows, kSize, random()));
      DeviceElements out(out_dtype, index_of(kRows * kSize));
      DeviceArray<std::byte> scratch(index_of(linear_scratch_bytes(kRows, kSize)));
      const CudaLinear args = plain_product(in, weight.view(), kRows, kSize, kSize, out, scratch);
      cuda::round_activations(stream(), args, cuda::float8_activations(args, true));
      EXPECT_TRUE(cuda::cublas_linear(stream(), args, nullptr))
          << (group != 0 ? "blocks" : "rows") << ", out " << name_of(out_dtype);
      synchronize();
    }
  }
}

// Products that are launched while the ones before them still run, on the same scratch memory.
TEST_F(Float8LinearCudaTest, FollowEachOther) {
  constexpr int64_t kSize = 1024;
  constexpr int kRounds = 40;
  for (const int64_t group : kFloat8Groups) {
    for (const int64_t rows : {1, 16, 60, 128, 200}) {
      SCOPED_TRACE(text_of({rows, kSize, kSize, group}));
      Float8Weight forth(kSize, kSize, group, random());
      Float8Weight back(kSize, kSize, group, random());
      const std::vector<float> first = random_activations(DType::kBFloat16, rows, kSize, random());
      DeviceElements x(DType::kBFloat16, index_of(rows * kSize));
      DeviceElements y(DType::kBFloat16, index_of(rows * kSize));
      DeviceArray<std::byte> scratch(index_of(linear_scratch_bytes(rows, kSize)));
      const auto multiply = [&](Float8Weight& weight, DeviceElements& in, DeviceElements& out) {
        cuda::linear(stream(), plain_product(in, weight.view(), rows, kSize, kSize, out, scratch));
      };
      const auto chain = [&](const std::function<void()>& after) {
        x.upload(first);
        y.poison();
        scratch.poison();
        for (int round = 0; round < kRounds; ++round) {
          multiply(forth, x, y);
          after();
          multiply(back, y, x);
          after();
        }
        synchronize();
        return x.download_bytes();
      };
      const auto one_by_one = chain([this] { synchronize(); });
      for (int repeat = 0; repeat < 5; ++repeat) {
        EXPECT_TRUE(chain([] {}) == one_by_one) << "repeat " << repeat;
      }
    }
  }
}

}  // namespace
}  // namespace quire::ops
