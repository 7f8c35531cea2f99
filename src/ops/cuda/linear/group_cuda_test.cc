// Products of integer weights, against sums in double of what their layout says they are.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/ceil_div.h"
#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/group.cuh"
#include "ops/cuda/linear/group_test_util.h"

namespace quire::ops {
namespace {

struct GroupCase {
  int64_t rows;
  int64_t n;
  int64_t k;
  WeightFormat format = WeightFormat::integers(4, 128);
  DType dtype = DType::kBFloat16;
  bool float_out = false;
  bool bias = false;
  bool silu_and_mul = false;
  bool is_permuted = false;
  bool has_odd_scales = false;
  int64_t in_gap = 0;  // elements between rows; multiples of 8
  int64_t out_gap = 0;
};

std::string text_of(const GroupCase& c) {
  return std::to_string(c.rows) + " rows of " + std::to_string(c.n) + " x " + std::to_string(c.k) +
         " " + std::string(name_of(c.dtype)) +
         (c.format.kind == WeightKind::kInt4 ? ", int4" : ", int8") + " in groups of " +
         std::to_string(c.format.group_size) + (c.format.has_offsets ? ", offsets" : "") +
         (c.float_out ? ", float out" : "") + (c.bias ? ", bias" : "") +
         (c.silu_and_mul ? ", silu" : "") + (c.is_permuted ? ", permuted" : "") +
         (c.has_odd_scales ? ", odd scales" : "");
}

class GroupLinearCudaTest : public Float8CudaTest {
 protected:
  // With `plan`, the kernel cuts the product that way; else linear() does all.
  void expect_right(const GroupCase& c, const cuda::GroupPlan* plan = nullptr) {
    SCOPED_TRACE(text_of(c));
    const int64_t in_stride = round_up<int64_t>(c.k, 8) + c.in_gap;
    const int64_t columns = c.silu_and_mul ? c.n / 2 : c.n;
    const int64_t out_stride = round_up(columns, 8) + c.out_gap;
    const DType out_dtype = c.float_out ? DType::kFloat32 : c.dtype;
    const std::vector<float> in = random_activations(c.dtype, c.rows, in_stride, random());
    const std::vector<float> bias = random_values(index_of(c.n), random());
    GroupWeight weight(c.format, c.n, c.k, c.is_permuted, random(), c.has_odd_scales);
    DeviceElements in_device(c.dtype, in);
    DeviceArray<float> bias_device(bias);
    DeviceElements out_device(out_dtype, index_of(c.rows * out_stride));
    DeviceArray<std::byte> scratch(index_of(group_scratch_bytes(c.rows, c.n, c.k, c.is_permuted)));
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
    const auto dot = [&](int64_t row, int64_t column) {
      return product_of(&in[index_of(row * in_stride)], weight, c, column,
                        c.bias ? bias[index_of(column)] : 0);
    };
    for (int64_t row = 0; row < c.rows; ++row) {
      const float* const out_row = &out[index_of(row * out_stride)];
      // All columns of few rows, a moving sample of the columns of many.
      const int64_t step = std::max<int64_t>(1, c.rows * columns * c.k / 4'000'000);
      for (int64_t column = row % step; column < columns; column += step) {
        Bounded expected = dot(row, column);
        if (c.silu_and_mul) expected = activated(c, expected, dot(row, columns + column));
        const double rounding = c.float_out ? 1e-6 : (c.dtype == DType::kFloat16 ? 6e-4 : 4.5e-3);
        const double bound = expected.error + rounding * std::abs(expected.value) + 1e-6;
        const double error = std::abs(out_row[column] - expected.value);
        ASSERT_TRUE(error <= bound)
            << "row " << row << ", column " << column << " is " << out_row[column] << ", not "
            << expected.value << " to within " << bound;
      }
      for (int64_t column = 0; column < columns; ++column) {
        ASSERT_FALSE(std::isnan(out_row[column])) << "row " << row << ", column " << column;
      }
      for (int64_t column = columns; column < out_stride; ++column) {
        ASSERT_TRUE(std::isnan(out_row[column])) << "row " << row << ", behind its end: " << column;
      }
    }
    out_device.poison();
    scratch.poison();
    run(args, plan);
    EXPECT_EQ(bytes, out_device.download_bytes()) << "the same arguments give other bits";
  }

  void run(const CudaLinear& args, const cuda::GroupPlan* plan = nullptr) {
    if (plan == nullptr) {
      cuda::linear(stream(), args);
    } else {
      cuda::group_linear(stream(), args, *plan);
    }
    synchronize();
  }

 private:
  // A number and how far off it may be.
  struct Bounded {
    double value;
    double error;
  };

  // Numbers of many rows are rounded to the activations' type, and so are shifts that are no
  // integers.
  static Bounded product_of(const float* in, const GroupWeight& weight, const GroupCase& c,
                            int64_t column, double bias) {
    const double of_type = c.dtype == DType::kFloat16 ? std::ldexp(1.0, -11) : std::ldexp(1.0, -8);
    double sum = 0;
    double magnitudes = 0;
    double squares = 0;
    const float* const numbers = weight.row(column);
    for (int64_t i = 0; i < c.k; ++i) {
      const double product = static_cast<double>(in[i]) * numbers[i];
      sum += product;
      magnitudes += std::abs(product);
      squares += product * product;
    }
    const bool rounds = c.rows > kMostGroupRows;
    // Roundings are as often up as down. Biases are rounded, too.
    const double rounded = rounds ? of_type * (8 * std::sqrt(squares) + 2 * std::abs(bias)) : 0;
    return {sum + bias, 3e-6 * magnitudes + rounded};
  }

  // Where a product and its activation are kernels of their own, what lies between is rounded.
  static Bounded activated(const GroupCase& c, Bounded gate, Bounded up) {
    const double of_type = c.dtype == DType::kFloat16 ? std::ldexp(1.0, -11) : std::ldexp(1.0, -8);
    if (c.rows > kMostGroupRows || c.n / 2 % kTileOutputs != 0) {
      gate.error += of_type * std::abs(gate.value);
      up.error += of_type * std::abs(up.value);
    }
    const double sigmoid = 1 / (1 + std::exp(-gate.value));
    const double silu = gate.value * sigmoid;
    return {silu * up.value, 1.1 * gate.error * std::abs(up.value) + std::abs(silu) * up.error +
                                 gate.error * up.error + 4e-6 * std::abs(silu * up.value)};
  }
};

TEST_F(GroupLinearCudaTest, IsRightForAllFormats) {
  for (const DType dtype : kHalfTypes) {
    for (const int bits : {4, 8}) {
      for (const int64_t group : {32, 64, 128, 0}) {
        for (const bool has_offsets : {false, true}) {
          const WeightFormat format = WeightFormat::integers(bits, group, has_offsets);
          for (const int64_t rows : {1, 16, 50, 130}) {
            expect_right({.rows = rows, .n = 192, .k = 512, .format = format, .dtype = dtype});
          }
          expect_right({.rows = 3, .n = 40, .k = 200, .format = format, .dtype = dtype});
          expect_right({.rows = 520, .n = 72, .k = 136, .format = format, .dtype = dtype});
        }
      }
    }
  }
}

TEST_F(GroupLinearCudaTest, IsRightForUnsignedIntegers) {
  WeightFormat format = WeightFormat::integers(4, 32, /*has_offsets=*/true);
  format.is_unsigned = true;
  for (const int64_t rows : {1, 20, 600}) {
    expect_right({.rows = rows, .n = 96, .k = 288, .format = format});
  }
}

TEST_F(GroupLinearCudaTest, IsRightForAwkwardSizes) {
  for (const int64_t rows : {1, 2, 7, 9, 17, 63, 65, 129, 257, 513}) {
    for (const int64_t n : {1, 33, 100, 200}) {
      for (const int64_t k : {8, 72, 129, 640}) {
        expect_right({.rows = rows, .n = n, .k = k, .in_gap = 8, .out_gap = 16});
      }
    }
  }
}

TEST_F(GroupLinearCudaTest, AddsBiasesAndActivates) {
  for (const DType dtype : kHalfTypes) {
    for (const int64_t rows : {1, 12, 64, 200, 600}) {
      for (const bool float_out : {false, true}) {
        expect_right({.rows = rows,
                      .n = 256,
                      .k = 384,
                      .dtype = dtype,
                      .float_out = float_out,
                      .bias = true});
        expect_right({.rows = rows,
                      .n = 256,
                      .k = 384,
                      .dtype = dtype,
                      .float_out = float_out,
                      .bias = true,
                      .silu_and_mul = true});
      }
      // Halves that do not begin with a panel.
      expect_right({.rows = rows, .n = 144, .k = 256, .dtype = dtype, .silu_and_mul = true});
    }
  }
}

TEST_F(GroupLinearCudaTest, TakesInputsInAnyOrder) {
  for (const int64_t rows : {1, 5, 70, 530}) {
    expect_right({.rows = rows,
                  .n = 128,
                  .k = 384,
                  .format = WeightFormat::integers(4, 32, true),
                  .is_permuted = true,
                  .in_gap = 8});
    expect_right({.rows = rows, .n = 64, .k = 100, .is_permuted = true});
  }
  // More than a grid has in that direction.
  expect_right({.rows = 65'600, .n = 32, .k = 40, .is_permuted = true});
}

TEST_F(GroupLinearCudaTest, IsRightForOddScales) {
  for (const int64_t group : {32, 128}) {
    for (const int64_t rows : {7, 20, 64, 130}) {
      for (const int64_t k : {128, 640, 2048}) {
        expect_right({.rows = rows,
                      .n = 200,
                      .k = k,
                      .format = WeightFormat::integers(4, group),
                      .has_odd_scales = true});
      }
    }
  }
}

TEST_F(GroupLinearCudaTest, IsRightHoweverItIsCut) {
  struct Tile {
    int rows;
    int warpgroups;
  };
  for (const Tile& tile : {Tile{8, 1}, Tile{16, 1}, Tile{64, 1}, Tile{128, 1}, Tile{128, 3}}) {
    for (const int splits : {1, 2, 4, 8}) {
      for (const int num_stages : {1, 2, 3}) {
        const cuda::GroupPlan plan = {tile.rows, tile.warpgroups, splits, num_stages,
                                      std::min(num_stages, 2)};
        for (const int64_t group : {32, 128}) {
          expect_right({.rows = 75,
                        .n = 320,
                        .k = 2176,
                        .format = WeightFormat::integers(4, group),
                        .bias = true},
                       &plan);
        }
        expect_right({.rows = 11,
                      .n = 320,
                      .k = 1024,
                      .format = WeightFormat::integers(8, 32, true),
                      .silu_and_mul = true},
                     &plan);
      }
    }
  }
}

}  // namespace
}  // namespace quire::ops
