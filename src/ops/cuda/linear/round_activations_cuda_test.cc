// How activations are rounded to float8, and what that does to products.
#include <cmath>
#include <limits>
#include <string>

#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/float8.cuh"
#include "ops/cuda/linear/float8_test_util.h"

namespace quire::ops {
namespace {

class RoundActivationsCudaTest : public Float8CudaTest {
 protected:
  void run(const CudaLinear& args) {
    cuda::linear(stream(), args);
    synchronize();
  }
  void expect_rounded(int64_t rows, int64_t k, int64_t group) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(k) +
                 (group != 0 ? ", blocks" : ""));
    const int64_t stride = k + 8;
    std::vector<float> in = random_activations(DType::kBFloat16, rows, stride, random());
    for (int64_t i = 0; i < k; ++i) in[index_of(stride + i)] *= 1e-37f;  // subnormal scales
    in = rounded(DType::kBFloat16, in);
    DeviceElements in_device(DType::kBFloat16, in);
    DeviceElements no_out(DType::kBFloat16, 0);
    DeviceArray<std::byte> scratch(index_of(linear_scratch_bytes(rows, k)));
    CudaLinear args = plain_product(in_device, {.format = WeightFormat::float8(group)}, rows, 16, k,
                                    no_out, scratch);
    args.in_stride = stride;
    const Float8Activations activations = cuda::float8_activations(args, false);
    cuda::round_activations(stream(), args, activations);
    synchronize();
    const std::vector<std::byte> bytes = scratch.download();
    const RoundedRows expected = round_rows(in, rows, k, stride, group);
    EXPECT_EQ(std::memcmp(bytes.data(), expected.codes.data(), expected.codes.size()), 0);
    const auto offset = reinterpret_cast<std::byte*>(activations.scales) - scratch.data();
    const int64_t blocks = group != 0 ? k / 128 : 1;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t block = 0; block < blocks; ++block) {
        float scale = 0;
        std::memcpy(&scale,
                    &bytes[static_cast<size_t>(offset) +
                           4 * index_of(block * activations.scale_stride + row)],
                    sizeof(scale));
        ASSERT_EQ(scale, expected.scales[index_of(row * blocks + block)])
            << "row " << row << ", block " << block;
      }
    }
  }
};

// The rounded activations and their scales, bit for bit.
TEST_F(RoundActivationsCudaTest, RoundsActivations) {
  for (const int64_t group : kFloat8Groups) {
    for (const int64_t k : {128, 1152, 4096, 12288, 12416, 20480}) expect_rounded(13, k, group);
    for (const int64_t k : {128, 1280, 20480}) expect_rounded(300, k, group);
  }
}

// A row with a number that is not finite has no finite output, and others are as without it.
TEST_F(RoundActivationsCudaTest, NumbersThatAreNotFinite) {
  constexpr int64_t kN = 272;
  constexpr int64_t kK = 1024;
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (const int64_t group : kFloat8Groups) {
    for (const DType dtype : kHalfTypes) {
      for (const int64_t rows : {5, 40, 200}) {
        SCOPED_TRACE(std::to_string(rows) + " rows " + std::string(name_of(dtype)) +
                     (group != 0 ? ", blocks" : ""));
        const std::vector<float> in = random_activations(dtype, rows, kK, random());
        Float8Weight weight(kN, kK, group, random());
        DeviceElements in_device(dtype, in);
        DeviceElements out_device(dtype, index_of(rows * kN));
        DeviceArray<std::byte> scratch(index_of(linear_scratch_bytes(rows, kK)));
        const CudaLinear args =
            plain_product(in_device, weight.view(), rows, kN, kK, out_device, scratch);
        run(args);
        const std::vector<float> good = out_device.download();
        std::vector<float> poisoned = in;
        for (int64_t i = 0; i < 3; ++i) poisoned[index_of((i + 1) * kK + 7 + 300 * i)] = bad[i];
        in_device.upload(poisoned);
        out_device.poison();
        run(args);
        const std::vector<float> out = out_device.download();
        for (int64_t i = 0; i < rows * kN; ++i) {
          const int64_t row = i / kN;
          const float value = out[index_of(i)];
          if (row >= 1 && row <= 3) {
            ASSERT_FALSE(std::isfinite(value)) << "row " << row << ", column " << i % kN;
          } else {
            ASSERT_EQ(value, good[index_of(i)]) << "row " << row << ", column " << i % kN;
          }
        }
      }
    }
  }
}

// What rounding both operands costs: e4m3 has 3 bits behind the point.
TEST_F(RoundActivationsCudaTest, IsNearTheProductBeforeRounding) {
  constexpr int64_t kN = 256;
  constexpr int64_t kK = 2048;
  const auto values = random_values(index_of(kN * kK), random(), 0.02f);
  const RoundedRows rounded_weight = round_rows(values, kN, kK, kK, 0);
  DeviceArray<uint8_t> codes(rounded_weight.codes);
  DeviceArray<float> scales(rounded_weight.scales);
  for (const int64_t rows : {4, 64, 200}) {
    const auto in = rounded(DType::kBFloat16, random_values(index_of(rows * kK), random()));
    DeviceElements in_device(DType::kBFloat16, in);
    DeviceElements out_device(DType::kFloat32, index_of(rows * kN));
    DeviceArray<std::byte> scratch(index_of(linear_scratch_bytes(rows, kK)));
    const WeightView weight = {
        .format = WeightFormat::float8(), .data = codes.data(), .scales = scales.data()};
    run(plain_product(in_device, weight, rows, kN, kK, out_device, scratch));
    std::vector<float> expected;
    for (int64_t i = 0; i < rows * kN; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < kK; ++j) {
        sum +=
            static_cast<double>(in[index_of(i / kN * kK + j)]) * values[index_of(i % kN * kK + j)];
      }
      expected.push_back(static_cast<float>(sum));
    }
    EXPECT_TRUE(is_close_l2(out_device.download(), expected, 0.045)) << rows << " rows";
  }
}

}  // namespace
}  // namespace quire::ops
