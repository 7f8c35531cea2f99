// Quantised matrices in the memory of a GPU, as their tensors turn out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers/parameters.h"
#include "ops/group_tiles.h"
#include "quire/error.h"

namespace quire {
namespace {

using ops::WeightFormat;
using ::testing::HasSubstr;

// The host's, in the place of a GPU's.
class MemoryOfTheHost final : public DeviceMemory {
 public:
  std::byte* take(size_t bytes) override {
    pieces_.push_back(std::make_unique<std::byte[]>(bytes));
    return pieces_.back().get();
  }
  void upload(std::byte* to, size_t, const std::function<void(std::byte* from)>& fill) override {
    fill(to);
  }
  void finish_uploads() override {}
  void download(void* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> pieces_;
};

constexpr int64_t kOutputsOnGpu = 16;
constexpr int64_t kInputsOnGpu = 64;

WeightScheme gptq_of_four_bits(bool act_order) {
  return {.name = "GPTQ",
          .layout = WeightLayout::kGptq,
          .bits = 4,
          .group_inputs = 32,
          .act_order = act_order};
}

std::vector<int32_t> groups_in_order() {
  std::vector<int32_t> groups(kInputsOnGpu);
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int32_t>(i / 32);
  return groups;
}

// The same groups with two of their inputs the other way round.
std::vector<int32_t> groups_swapped(size_t a, size_t b) {
  std::vector<int32_t> groups = groups_in_order();
  std::swap(groups[a], groups[b]);
  return groups;
}

std::vector<int32_t> groups_of_other_sizes() {
  std::vector<int32_t> groups = groups_in_order();
  groups[40] = 0;
  return groups;
}

// Two parts of 16 outputs, as gate and up: of a module each, or of one.
class MatrixOnAGpu : public testing::Test {
 protected:
  void make(int num_modules, bool act_order, int capability = 90, DType dtype = DType::kBFloat16) {
    Placement gpu;
    gpu.dtype = dtype;
    gpu.device = {.type = DeviceType::kCuda, .memory = &memory_, .compute_capability = capability};
    MatrixFormat format;
    for (int i = 0; i < num_modules; ++i) {
      format.modules.push_back({"module" + std::to_string(i), gptq_of_four_bits(act_order)});
    }
    std::vector<ParameterPart> parts;
    for (int64_t i = 0; i < 2; ++i) {
      parts.push_back({{kOutputsOnGpu, kInputsOnGpu},
                       {0, kOutputsOnGpu},
                       {0, kInputsOnGpu},
                       i * kOutputsOnGpu});
    }
    matrix_ =
        std::make_unique<MatrixParameter>(gpu, format, 2 * kOutputsOnGpu, kInputsOnGpu, parts);
  }

  // With these groups of the parts, and zero points of 8 but for one of the first output's.
  void load(const std::vector<int32_t>& groups, const std::vector<int32_t>& groups_of_second,
            int zero_point = 8) {
    for (size_t part = 0; part < 2; ++part) {
      std::vector<int32_t> numbers(kInputsOnGpu / 8 * kOutputsOnGpu, 0x76543210);
      std::vector<float> scales(2 * kOutputsOnGpu, 0.5f);
      std::vector<int32_t> zeros(4, static_cast<int32_t>(0x88888888));
      if (part == 0) zeros[0] = static_cast<int32_t>(0x88888880 | zero_point);
      store(part, 0, Tensor(numbers.data(), DType::kInt32, {kInputsOnGpu / 8, kOutputsOnGpu}));
      store(part, 1, Tensor(scales.data(), DType::kFloat32, {2, kOutputsOnGpu}));
      store(part, 2, Tensor(zeros.data(), DType::kInt32, {2, 2}));
      std::vector<int32_t> own = part == 0 ? groups : groups_of_second;
      store(part, 3, Tensor(own.data(), DType::kInt32, {kInputsOnGpu, 1}));
    }
    ThreadPool pool(2);
    matrix_->finish(pool);
  }

  // What finish() says.
  std::string refusal(const std::vector<int32_t>& groups) {
    try {
      load(groups, groups);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const MatrixParameter& matrix() const { return *matrix_; }
  const WeightFormat& format() const { return matrix_->weight().format(); }

  // All rows are 0 to 7 in turn, less 8, times 0.5; the first group of the first row has its own
  // zero point.
  void expect_numbers(const std::vector<int32_t>& groups, int zero_point = 8) {
    for (int64_t row = 0; row < 2 * kOutputsOnGpu; ++row) {
      const std::vector<float> actual = numbers_of(row);
      for (size_t i = 0; i < actual.size(); ++i) {
        const int zero = row == 0 && groups[i] == 0 ? zero_point : 8;
        EXPECT_EQ(actual[i], 0.5f * static_cast<float>(static_cast<int>(i % 8) - zero))
            << row << ' ' << i;
      }
    }
  }

 private:
  void store(size_t part, size_t leaf, const Tensor& source) {
    matrix_->store({.tensor = leaf,
                    .first_row = matrix_->tensors()[leaf].parts[part].first_row,
                    .source = source});
  }

  std::vector<float> numbers_of(int64_t row) const {
    const ops::Weight& weight = matrix_->weight();
    std::vector<float> lying(kInputsOnGpu);
    if (format().is_integer()) {
      ops::unpack_tile_row(ops::group_tiles(format(), weight.n(), weight.k()), row, weight.data(),
                           lying.data());
    } else {
      for (int64_t i = 0; i < kInputsOnGpu; ++i) {
        const auto at = static_cast<size_t>(i);
        lying[at] = format().dtype == DType::kFloat32
                        ? reinterpret_cast<const float*>(weight.data())[row * kInputsOnGpu + i]
                        : static_cast<float>(reinterpret_cast<const BFloat16*>(
                              weight.data())[row * kInputsOnGpu + i]);
      }
    }
    if (weight.permutation() == nullptr) return lying;
    std::vector<float> result(kInputsOnGpu);
    for (size_t i = 0; i < result.size(); ++i) {
      result[static_cast<size_t>(weight.permutation()[i])] = lying[i];
    }
    return result;
  }

  MemoryOfTheHost memory_;
  std::unique_ptr<MatrixParameter> matrix_;
};

TEST_F(MatrixOnAGpu, IsDenseWherePartsHaveDifferentOrders) {
  make(2, /*act_order=*/true);
  EXPECT_TRUE(format().is_integer());
  load(groups_swapped(5, 40), groups_swapped(6, 50));
  EXPECT_EQ(format(), WeightFormat(DType::kBFloat16));
  expect_numbers(groups_in_order());
}

// A dense weight needs no order, and has nothing to become.
TEST_F(MatrixOnAGpu, TakesDifferentOrdersWhereItIsDenseAnyway) {
  make(2, /*act_order=*/true, /*capability=*/80);
  load(groups_swapped(5, 40), groups_swapped(6, 50));
  EXPECT_EQ(format(), WeightFormat(DType::kBFloat16));
  expect_numbers(groups_in_order());
  make(2, /*act_order=*/true, /*capability=*/90, DType::kFloat32);
  load(groups_swapped(5, 40), groups_of_other_sizes());
  EXPECT_EQ(format(), WeightFormat(DType::kFloat32));
  expect_numbers(groups_in_order());
}

// One module of two parts has no room to be dense.
TEST_F(MatrixOnAGpu, RefusesGroupsOfOtherSizesWithASentence) {
  for (const int num_modules : {1, 2}) {
    make(num_modules, /*act_order=*/false);
    EXPECT_THAT(refusal(groups_of_other_sizes()),
                HasSubstr("module0: its tensors do not fit its scheme in config.json"));
  }
  make(1, /*act_order=*/true);
  EXPECT_THAT(refusal(groups_of_other_sizes()), HasSubstr("--dtype float32"));
  make(2, /*act_order=*/true);
  EXPECT_EQ(refusal(groups_of_other_sizes()), "");
  expect_numbers(groups_in_order());
}

// Whatever the config says of zero points and of an order.
TEST_F(MatrixOnAGpu, StaysPackedWhereZeroPointsAreNotSymmetric) {
  for (const bool act_order : {false, true}) {
    for (const int num_modules : {1, 2}) {
      make(num_modules, act_order);
      load(groups_in_order(), groups_in_order(), /*zero_point=*/7);
      EXPECT_EQ(format(), WeightFormat::integers(4, 32, /*has_offsets=*/true));
      expect_numbers(groups_in_order(), /*zero_point=*/7);
      make(num_modules, act_order);
      load(groups_in_order(), groups_in_order());
      EXPECT_EQ(format(), WeightFormat::integers(4, 32));
      expect_numbers(groups_in_order());
    }
  }
}

TEST_F(MatrixOnAGpu, StaysPackedWhereInputsAreInAnotherOrder) {
  make(2, /*act_order=*/false);
  load(groups_swapped(5, 40), groups_swapped(5, 40));
  EXPECT_TRUE(format().is_integer());
  EXPECT_NE(matrix().weight().permutation(), nullptr);
  expect_numbers(groups_swapped(5, 40));
}

// Rows of activations would not begin at multiples of 16 bytes.
TEST(RoundedMatrixOnAGpu, IsDenseWhereInputsAreNoMultipleOf8) {
  MemoryOfTheHost memory;
  Placement gpu;
  gpu.dtype = DType::kBFloat16;
  gpu.device = {.type = DeviceType::kCuda, .memory = &memory, .compute_capability = 90};
  for (const WeightRounding rounding : {WeightRounding::kInt4, WeightRounding::kInt8}) {
    gpu.rounding = rounding;
    for (const int64_t k : {100, 129, 136}) {
      const MatrixParameter matrix(gpu, {}, 32, k, {{{32, k}, {0, 32}, {0, k}}});
      EXPECT_EQ(matrix.weight().format().is_integer(), k == 136) << k;
    }
  }
}

}  // namespace
}  // namespace quire
