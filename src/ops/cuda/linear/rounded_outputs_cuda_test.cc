// Activations that norms and gated products round for the next product: the bits are those of
// rounding in a kernel of its own.
#include <algorithm>
#include <limits>
#include <string>

#include "base/ceil_div.h"
#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/float8.cuh"
#include "ops/cuda/linear/float8_test_util.h"

namespace quire::ops {
namespace {

// Room for rows of k rounded activations, with a gap between blocks' scales.
class RoundedRoom {
 public:
  RoundedRoom(int64_t rows, int64_t k, int64_t group)
      : stride_(group != 0 ? rows + 3 : 0),
        data_(index_of(rows * k)),
        scales_(index_of(group != 0 ? ceil_div(k, group) * stride_ : rows)) {}

  Float8Activations view() { return {data_.data(), scales_.data(), stride_}; }
  void poison() {
    data_.poison();
    scales_.poison();
  }
  std::vector<uint8_t> data() const { return data_.download(); }
  // As bits, because some are not numbers.
  std::vector<uint32_t> scales() const {
    const std::vector<float> scales = scales_.download();
    std::vector<uint32_t> bits(scales.size());
    std::memcpy(bits.data(), scales.data(), scales.size() * sizeof(float));
    return bits;
  }

 private:
  int64_t stride_;
  DeviceArray<uint8_t> data_;
  DeviceArray<float> scales_;
};

class RoundedOutputsCudaTest : public Float8CudaTest {
 protected:
  // What is in `room` after `with` is what `without` leaves there.
  template <typename F, typename G>
  void expect_same(RoundedRoom& room, const F& without, const G& with) {
    room.poison();
    without();
    synchronize();
    const auto data = room.data();
    const auto scales = room.scales();
    room.poison();
    with();
    synchronize();
    EXPECT_TRUE(data == room.data());
    EXPECT_TRUE(scales == room.scales());
  }

  void expect_norm(DType dtype, int64_t rows, int64_t n, int64_t group, bool has_residual) {
    SCOPED_TRACE(std::string(name_of(dtype)) + ", " + std::to_string(rows) + " rows of " +
                 std::to_string(n) + (group != 0 ? ", blocks" : "") +
                 (has_residual ? ", residual" : ""));
    std::vector<float> in = random_activations(dtype, rows, n, random());
    if (rows > 2) in[index_of(2 * n + 5)] = std::numeric_limits<float>::infinity();
    const auto before = random_activations(dtype, rows, n, random());
    DeviceElements x(dtype, in);
    DeviceElements residual(dtype, before);
    DeviceArray<float> weight(random_values(index_of(n), random()));
    DeviceElements out(dtype, index_of(rows * n));
    RoundedRoom room(rows, n, group);
    CudaRmsNorm args = {.dtype = dtype,
                        .x = x.data(),
                        .residual = has_residual ? residual.data() : nullptr,
                        .weight = weight.data(),
                        .eps = 1e-6f,
                        .rows = rows,
                        .n = n,
                        .out = out.data()};
    std::vector<std::byte> sums;
    const auto without = [&] {
      cuda::rms_norm(stream(), args);
      cuda::round_to_float8(stream(), {dtype, out.data(), n, rows, n, room.view()});
      sums = residual.download_bytes();
      residual.upload(before);
      out.poison();
      args.rounded = room.view();
    };
    expect_same(room, without, [&] { cuda::rms_norm(stream(), args); });
    EXPECT_TRUE(sums == residual.download_bytes());
  }

  // linear() of rows that are rounded already, and of such that it rounds itself.
  void expect_product(int64_t rows, int64_t n, int64_t k, int64_t group, bool silu_and_mul,
                      bool has_bias) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(n) + " x " +
                 std::to_string(k) + (group != 0 ? ", blocks" : "") +
                 (silu_and_mul ? ", silu" : "") + (has_bias ? ", bias" : ""));
    DeviceElements in(DType::kBFloat16, random_activations(DType::kBFloat16, rows, k, random()));
    Float8Weight weight(n, k, group, random());
    DeviceArray<float> bias(random_values(index_of(n), random()));
    DeviceElements out(DType::kBFloat16, index_of(rows * n));
    DeviceArray<std::byte> scratch(index_of(linear_scratch_bytes(rows, k)));
    CudaLinear args = plain_product(in, weight.view(), rows, n, k, out, scratch);
    args.silu_and_mul = silu_and_mul;
    args.bias = has_bias ? bias.data() : nullptr;
    cuda::linear(stream(), args);
    synchronize();
    const auto expected = out.download_bytes();
    out.poison();
    scratch.poison();
    args.rounded_in = cuda::linear_rounded_in(stream(), args);
    if (args.rounded_in.data == nullptr) {
      ++left_to_products_;
      return;
    }
    cuda::round_to_float8(stream(), {DType::kBFloat16, in.data(), k, rows, k, args.rounded_in});
    args.in = nullptr;
    cuda::linear(stream(), args);
    synchronize();
    EXPECT_TRUE(expected == out.download_bytes());
  }

  void expect_gated(DType dtype, int64_t rows, int64_t n, int64_t k, int64_t group,
                    int64_t out_group) {
    SCOPED_TRACE(std::string(name_of(dtype)) + ", " + std::to_string(rows) + " rows of " +
                 std::to_string(n) + " x " + std::to_string(k) + (group != 0 ? ", blocks" : "") +
                 (out_group != 0 ? ", blocks out" : ""));
    DeviceElements in(dtype, random_activations(dtype, rows, k, random()));
    Float8Weight weight(n, k, group, random());
    DeviceElements out(dtype, index_of(rows * n / 2));
    DeviceArray<std::byte> scratch(index_of(linear_scratch_bytes(rows, k)));
    RoundedRoom room(rows, n / 2, out_group);
    CudaLinear args = plain_product(in, weight.view(), rows, n, k, out, scratch);
    args.silu_and_mul = true;
    args.out_stride = n / 2;
    const auto without = [&] {
      cuda::linear(stream(), args);
      cuda::round_to_float8(stream(), {dtype, out.data(), n / 2, rows, n / 2, room.view()});
      synchronize();
      out.poison();
      scratch.poison();
      args.rounded_out = room.view();
    };
    expect_same(room, without, [&] { cuda::linear(stream(), args); });
  }

  int left_to_products_ = 0;
};

TEST_F(RoundedOutputsCudaTest, OfNorms) {
  for (const int64_t group : kFloat8Groups) {
    for (const DType dtype : kHalfTypes) {
      for (const bool has_residual : {false, true}) {
        // One, two and four packs a thread; rows that do not stay in registers; more rows than
        // blocks.
        for (const int64_t n : {128, 384, 1024, 4096, 5120, 12288, 16384, 16512}) {
          expect_norm(dtype, 5, n, group, has_residual);
        }
        expect_norm(dtype, 2500, 1152, group, has_residual);
      }
    }
  }
}

TEST_F(RoundedOutputsCudaTest, AreProductsInputs) {
  for (const int64_t group : kFloat8Groups) {
    for (const int64_t rows : {1, 16, 33, 64, 96, 128, 129, 300, 600}) {
      for (const bool has_bias : {false, true}) {
        expect_product(rows, 1024, 1024, group, false, has_bias);
        expect_product(rows, 544, 640, group, true, has_bias);
        expect_product(rows, 8448, 512, group, true, has_bias);
      }
    }
  }
  // Only blocks' scales of 129 rows, whose products are cuBLAS's.
  EXPECT_EQ(left_to_products_, 4);
  // Rows that cuBLAS multiplies piece by piece.
  expect_product(2052, 24576, 512, 0, true, true);
  EXPECT_EQ(left_to_products_, 4);
  expect_product(2052, 24576, 512, 128, true, true);
  EXPECT_EQ(left_to_products_, 5);
}

TEST_F(RoundedOutputsCudaTest, OfGatedProducts) {
  for (const int64_t group : kFloat8Groups) {
    for (const int64_t out_group : kFloat8Groups) {
      for (const DType dtype : kHalfTypes) {
        for (const int64_t rows : {1, 64, 100, 300}) {
          for (const int64_t inner : {128, 1152, 4224}) {
            expect_gated(dtype, rows, 2 * inner, 256, group, out_group);
          }
        }
      }
      // Four and eight packs a thread, rows that do not stay in registers, more than one piece.
      for (const int64_t inner : {12288, 16512, 32896}) {
        expect_gated(DType::kBFloat16, 132, 2 * inner, 256, group, out_group);
      }
      expect_gated(DType::kBFloat16, 2052, 24576, 128, group, out_group);
    }
  }
}

}  // namespace
}  // namespace quire::ops
