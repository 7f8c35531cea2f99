#include <cmath>
#include <string>

#include "base/ceil_div.h"
#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/linear.cuh"

namespace quire::ops {
namespace {

struct Case {
  int64_t rows;
  int64_t n;
  int64_t k;
  DType dtype = DType::kBFloat16;
  bool float_out = false;
  bool bias = false;
  bool silu_and_mul = false;
  int64_t in_gap = 0;  // elements between rows; multiples of 8
  int64_t out_gap = 0;
};

std::string text_of(const Case& c) {
  return std::to_string(c.rows) + " rows of " + std::to_string(c.n) + " x " + std::to_string(c.k) +
         " " + std::string(name_of(c.dtype)) + (c.float_out ? ", float out" : "") +
         (c.bias ? ", bias" : "") + (c.silu_and_mul ? ", silu" : "");
}

class LinearCudaTest : public CudaTest {
 protected:
  // Compares linear's result with a double's, element by element of rows and columns that cover all
  // tiles' edges; sizes are such that the host is done in a second.
  void expect_right(const Case& c, const cuda::SkinnyPlan* plan = nullptr) {
    SCOPED_TRACE(text_of(c));
    const int64_t in_stride = round_up(c.k, 8) + c.in_gap;
    const int64_t columns = c.silu_and_mul ? c.n / 2 : c.n;
    const int64_t out_stride = round_up(columns, 8) + c.out_gap;
    const DType out_dtype = c.float_out ? DType::kFloat32 : c.dtype;

    const auto in_count = static_cast<size_t>(c.rows * in_stride);
    const auto in = rounded(c.dtype, random_values(in_count, random()));
    const auto weight = rounded(c.dtype, random_values(static_cast<size_t>(c.n * c.k), random(),
                                                       1 / std::sqrt(static_cast<float>(c.k))));
    const auto bias = random_values(static_cast<size_t>(c.n), random());
    DeviceElements in_device(c.dtype, in);
    DeviceElements weight_device(c.dtype, weight);
    DeviceArray<float> bias_device(bias);
    DeviceElements out_device(out_dtype, static_cast<size_t>(c.rows * out_stride));

    const CudaLinear args = {.dtype = c.dtype,
                             .in = in_device.data(),
                             .in_stride = in_stride,
                             .weight = {.format = c.dtype, .data = weight_device.data()},
                             .rows = c.rows,
                             .n = c.n,
                             .k = c.k,
                             .bias = c.bias ? bias_device.data() : nullptr,
                             .out = out_device.data(),
                             .out_stride = out_stride,
                             .out_dtype = out_dtype,
                             .silu_and_mul = c.silu_and_mul};
    const auto run = [&] {
      if (plan == nullptr) {
        cuda::linear(stream(), args);
      } else {
        cuda::skinny_linear(stream(), args, *plan);
      }
    };
    run();
    synchronize();
    const auto bytes = out_device.download_bytes();
    const auto out = out_device.download();

    const auto dot = [&](int64_t row, int64_t column) {
      double sum = c.bias ? static_cast<double>(bias[static_cast<size_t>(column)]) : 0.0;
      const float* x = &in[static_cast<size_t>(row * in_stride)];
      const float* w = &weight[static_cast<size_t>(column * c.k)];
      for (int64_t i = 0; i < c.k; ++i) sum += static_cast<double>(x[i]) * w[i];
      return sum;
    };
    std::vector<float> actual;
    std::vector<float> expected;
    for (int64_t row = 0; row < c.rows; ++row) {
      // All columns of few rows, a moving sample of the columns of many.
      const int64_t step = std::max<int64_t>(1, c.rows * columns * c.k / 40'000'000);
      for (int64_t column = row % step; column < columns; column += step) {
        double value = dot(row, column);
        if (c.silu_and_mul) {
          value = value / (1 + std::exp(-value)) * dot(row, columns + column);
        }
        actual.push_back(out[static_cast<size_t>(row * out_stride + column)]);
        expected.push_back(static_cast<float>(value));
      }
      for (int64_t column = 0; column < columns; ++column) {
        ASSERT_FALSE(std::isnan(out[static_cast<size_t>(row * out_stride + column)]))
            << "row " << row << ", column " << column;
      }
      for (int64_t column = columns; column < out_stride; ++column) {
        ASSERT_TRUE(std::isnan(out[static_cast<size_t>(row * out_stride + column)]))
            << "row " << row << ", behind its end at " << column;
      }
    }
    const bool exact = c.dtype == DType::kFloat32 || (c.float_out && !c.silu_and_mul);
    const double tolerance = exact ? 1e-5 : 5e-3;
    EXPECT_TRUE(is_close_l2(actual, expected, tolerance));

    out_device.poison();
    run();
    synchronize();
    EXPECT_EQ(bytes, out_device.download_bytes()) << "the same arguments give other bits";
  }
};

constexpr DType kTypes[] = {DType::kBFloat16, DType::kFloat16, DType::kFloat32};

TEST_F(LinearCudaTest, AwkwardSizes) {
  for (const DType dtype : kTypes) {
    expect_right({1, 1, 8, dtype});
    expect_right({1, 2, 8, dtype, false, true, true});
    expect_right({3, 65, 72, dtype, false, true});
    expect_right({17, 129, 136, dtype, true, true, false, 8, 16});
    expect_right({65, 130, 328, dtype, false, false, true, 24, 8});
    expect_right({129, 257, 520, dtype, false, true});
    expect_right({300, 190, 64, dtype, true, true});
    expect_right({513, 514, 200, dtype, false, true, true, 8, 8});
  }
}

TEST_F(LinearCudaTest, DepthsThatAreNoMultipleOf8) {
  for (const DType dtype : kTypes) {
    expect_right({1, 3, 1, dtype});
    expect_right({5, 67, 37, dtype, true, true});
    expect_right({70, 130, 101, dtype, false, true, true, 8, 8});
  }
}

// Every number of rows around the edges of tiles.
TEST_F(LinearCudaTest, RowsOfDecodeSteps) {
  for (const int64_t rows : {1,  2,  4,  7,   8,   9,   15,  16,  17,  31,  32,  33,  48, 63,
                             64, 65, 96, 127, 128, 129, 191, 192, 255, 256, 257, 383, 512}) {
    expect_right({rows, 384, 640, DType::kBFloat16, false, rows % 2 == 0});
    expect_right({rows, 320, 448, DType::kFloat16, false, rows % 2 == 1, true});
  }
}

// The shapes of Qwen3-0.6B, and its parts on two ranks.
TEST_F(LinearCudaTest, ShapesOfModels) {
  for (const int64_t rows : {1, 16, 64, 256}) {
    expect_right({rows, 4096, 1024});
    expect_right({rows, 1024, 2048});
    expect_right({rows, 1024, 3072});
    expect_right({rows, 6144, 1024, DType::kBFloat16, false, false, true});
    expect_right({rows, 2048, 1024});
    expect_right({rows, 1024, 1536});
  }
  expect_right({4, 20000, 1024, DType::kBFloat16, true});
  expect_right({100, 20001, 1024, DType::kBFloat16, true});
}

// Rows that are multiplied piece by piece: the scratch memory holds 2048 rows of 24576.
TEST_F(LinearCudaTest, MoreRowsThanTheScratchMemoryHolds) {
  expect_right({2049, 24576, 64, DType::kBFloat16, false, true, true});
}

cuda::SkinnyPlan plan_of(int64_t rows, int64_t n, int64_t k) {
  CudaLinear args = {};
  args.rows = rows;
  args.n = n;
  args.k = k;
  return cuda::skinny_plan(args);
}

// Blocks of the plan for `rows` rows of a matrix, and how many of them one multiprocessor holds by
// its shared memory (skinny_cuda.cu): stages, sums behind them where tiles are narrow, and
// barriers.
struct Blocks {
  int64_t count;
  int64_t of_multiprocessor;
};
Blocks blocks_of_plan(int64_t rows, int64_t n, int64_t k) {
  const cuda::SkinnyPlan plan = plan_of(rows, n, k);
  constexpr int64_t kMultiprocessorBytes = 228 << 10;
  constexpr int64_t kBlockBytes = 3 << 10;  // alignment, barriers, and what each block costs
  const int64_t stage = (plan.tile_rows + plan.tile_columns) * cuda::kDepth * 2;
  const int64_t sums =
      plan.tile_columns > cuda::kGroupColumns ? 0 : int64_t{4} * plan.tile_rows * plan.tile_columns;
  return {ceil_div(n, int64_t{plan.tile_columns}) * plan.splits,
          kMultiprocessorBytes / (plan.num_stages * stage + sums + kBlockBytes)};
}

// Whatever the width, blocks of 64 rows fill the device once, or leave little of it idle at the
// end.
TEST(SkinnyPlanTest, BlocksAreOnTheDeviceAtOnce) {
  constexpr int64_t kMultiprocessors = 132;
  constexpr int64_t kWidest = 3 * kMultiprocessors * 128;
  for (int64_t n = 1024; n <= kWidest; n += 64) {
    const Blocks blocks = blocks_of_plan(64, n, 4096);
    EXPECT_LE(blocks.count, blocks.of_multiprocessor * kMultiprocessors) << n;
  }
  for (int64_t n = kWidest + 128; n <= 2 * kWidest; n += 128) {
    const Blocks blocks = blocks_of_plan(64, n, 4096);
    const int64_t at_once = blocks.of_multiprocessor * kMultiprocessors;
    EXPECT_GE(4 * blocks.count, 3 * round_up(blocks.count, at_once)) << n;
  }
}

TEST(SkinnyPlanTest, DeepMatricesAreCutIntoPartsThatFit) {
  const auto splits = [](int64_t rows, int64_t n, int64_t k) { return plan_of(rows, n, k).splits; };
  for (const int64_t rows : {16, 32, 64}) {
    EXPECT_EQ(splits(rows, 3584, 18944), 4) << rows;  // 56 tiles
    EXPECT_EQ(splits(rows, 4096, 14336), 2) << rows;  // 64: in four parts some would find no room
  }
  EXPECT_EQ(splits(64, 5120, 17408),
            4);  // 80: in two parts 28 multiprocessors would have twice as much
  EXPECT_EQ(splits(64, 5120, 5120), 2);  // too little to do for four
}

// Every kernel, split of k and cluster, whichever the table picks.
TEST_F(LinearCudaTest, PlansOfTheSkinnyKernel) {
  if (stream().compute_capability() != 90) GTEST_SKIP() << "The kernel is for devices of 9.0.";
  for (const int tile_rows : {8, 16, 32, 64}) {
    for (const int tile_columns : {64, 128}) {
      if (tile_columns == 128 && tile_rows < 64) continue;
      for (const int splits : {1, 2, 4, 8}) {
        for (const int cluster : {0, 1, 2, 3}) {
          const int cluster_rows = 1 + cluster % 2;
          const int cluster_columns = 1 + cluster / 2;
          if (splits * cluster_rows * cluster_columns > 8) continue;
          const cuda::SkinnyPlan plan = {tile_rows, tile_columns, splits,
                                         3,         cluster_rows, cluster_columns};
          SCOPED_TRACE("tiles of " + std::to_string(tile_rows) + " x " +
                       std::to_string(tile_columns) + ", " + std::to_string(splits) +
                       " splits, cluster of " + std::to_string(cluster_rows) + " x " +
                       std::to_string(cluster_columns));
          expect_right({2 * tile_rows - 3, 330, 2056, DType::kBFloat16, false, true}, &plan);
          expect_right({tile_rows, 520, 1096, DType::kFloat16, splits == 2, true, true, 8, 8},
                       &plan);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::ops
