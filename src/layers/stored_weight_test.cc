#include "layers/stored_weight.h"

#include <gtest/gtest.h>

#include "layers/parameters.h"
#include "loader/weight_loader.h"

namespace quire {
namespace {

using ops::WeightFormat;

Placement on_cpu(DType dtype) {
  Placement place;
  place.dtype = dtype;
  return place;
}

WeightScheme gptq(int64_t group_inputs) {
  return {.name = "GPTQ", .layout = WeightLayout::kGptq, .bits = 4, .group_inputs = group_inputs};
}

// For a matrix [64, 256] on the CPU in bfloat16; the rank has inputs from `first_input` on.
WeightFormat format_of(const std::vector<WeightScheme>& schemes, int64_t first_input = 0) {
  std::vector<StoredModule> modules;
  std::vector<ParameterPart> parts;
  for (const WeightScheme& scheme : schemes) {
    modules.push_back({"a", scheme});
    parts.push_back({{64, 256}, {0, 64}, {first_input, 256}});
  }
  return stored_format(on_cpu(DType::kBFloat16), modules, parts);
}

WeightFormat rounding(WeightFormat format) {
  format.rounds_activations = true;
  return format;
}

TEST(StoredFormat, HasTheSchemesGroupsOrPartsOfThem) {
  EXPECT_EQ(format_of({gptq(128)}), rounding(WeightFormat::integers(4, 128)));
  EXPECT_EQ(format_of({gptq(0)}), rounding(WeightFormat::integers(4, 0)));
  EXPECT_EQ(format_of({gptq(256)}), rounding(WeightFormat::integers(4, 128)));
  EXPECT_EQ(format_of({gptq(96)}), rounding(WeightFormat::integers(4, 32)));
  EXPECT_EQ(format_of({gptq(24)}), WeightFormat(DType::kBFloat16));
  EXPECT_EQ(format_of({gptq(128), gptq(64), gptq(0)}), rounding(WeightFormat::integers(4, 64)));
  // A rank whose inputs begin within a group.
  EXPECT_EQ(format_of({gptq(128)}, 96), rounding(WeightFormat::integers(4, 32)));
  EXPECT_EQ(format_of({gptq(128)}, 8), WeightFormat(DType::kBFloat16));
}

// Only where the rank has all inputs can they be put in the order of their groups.
TEST(StoredFormat, HasActOrdersGroupsOfAllInputs) {
  WeightScheme ordered = gptq(64);
  ordered.act_order = true;
  EXPECT_EQ(format_of({ordered}), rounding(WeightFormat::integers(4, 64)));
  EXPECT_EQ(format_of({ordered}, 128), WeightFormat(DType::kBFloat16));
}

TEST(StoredFormat, HasOffsetsAndBitsForAllParts) {
  WeightScheme with_zeros = gptq(32);
  with_zeros.symmetric = false;
  EXPECT_EQ(format_of({gptq(32), with_zeros}),
            rounding(WeightFormat::integers(4, 32, /*has_offsets=*/true)));
  WeightScheme eight = gptq(32);
  eight.bits = 8;
  EXPECT_EQ(format_of({gptq(32), eight}), rounding(WeightFormat::integers(8, 32)));
  // A byte may hold more than its four bits say.
  const WeightScheme bytes{.name = "int-quantized", .layout = WeightLayout::kInt8, .bits = 4};
  EXPECT_EQ(format_of({bytes}), rounding(WeightFormat::integers(8, 0)));
}

TEST(StoredFormat, IsFloat8WithoutGroupsOfInputs) {
  WeightScheme float8{.name = "fp8", .group_outputs = 0};
  EXPECT_EQ(format_of({float8}), WeightFormat::float8());
  float8.group_outputs = 128;
  float8.group_inputs = 128;
  EXPECT_EQ(format_of({float8}), WeightFormat(DType::kBFloat16));
}

TEST(StoredFormat, FollowsThePlacement) {
  const std::vector<StoredModule> modules{{"a", gptq(128)}};
  const std::vector<ParameterPart> parts{{{64, 256}, {0, 64}, {0, 256}}};
  EXPECT_EQ(stored_format(on_cpu(DType::kFloat32), modules, parts), WeightFormat::integers(4, 128));
  Placement gpu = on_cpu(DType::kFloat16);
  gpu.device.type = DeviceType::kCuda;
  EXPECT_EQ(stored_format(gpu, modules, parts), WeightFormat(DType::kFloat16));
}

// Parts of a fused matrix on a GPU of compute capability 9.0, one below the other: part i has
// rows[i] rows. This one is rank `rank` of `size`.
WeightFormat format_on_gpu(const WeightScheme& scheme, const std::vector<int64_t>& rows, int64_t k,
                           int rank = 0, int size = 1) {
  Placement gpu = on_cpu(DType::kBFloat16);
  gpu.device = {.type = DeviceType::kCuda, .compute_capability = 90};
  std::vector<StoredModule> modules;
  std::vector<ParameterPart> parts;
  int64_t first_row = 0;
  for (const int64_t each : rows) {
    modules.push_back({"a", scheme});
    const int64_t own = each / size;
    parts.push_back({{each, k}, {rank * own, (rank + 1) * own}, {0, k}, first_row});
    first_row += own;
  }
  return stored_format(gpu, modules, parts);
}

const WeightFormat kDense(DType::kBFloat16);
const WeightScheme kFloat8Tensor{.name = "fp8", .group_outputs = 0};
const WeightScheme kFloat8Blocks{.name = "fp8", .group_outputs = 128, .group_inputs = 128};

TEST(StoredFormat, IsFloat8OnAGpuThatMultipliesByIt) {
  EXPECT_EQ(format_on_gpu(kFloat8Tensor, {48, 16, 16}, 256), WeightFormat::float8());
  EXPECT_EQ(format_on_gpu(kFloat8Tensor, {48, 16, 8}, 256), kDense);
  EXPECT_EQ(format_on_gpu(kFloat8Tensor, {48, 16, 16}, 192), kDense);
  const std::vector<StoredModule> modules{{"a", kFloat8Tensor}};
  const std::vector<ParameterPart> parts{{{64, 256}, {0, 64}, {0, 256}}};
  Placement gpu = on_cpu(DType::kBFloat16);
  gpu.device = {.type = DeviceType::kCuda, .compute_capability = 90};
  EXPECT_EQ(stored_format(gpu, modules, parts), WeightFormat::float8());
  Placement other = gpu;
  other.device.compute_capability = 80;
  EXPECT_EQ(stored_format(other, modules, parts), kDense);
  other = gpu;
  other.may_be_quantised = false;
  EXPECT_EQ(stored_format(other, modules, parts), kDense);
  other = gpu;
  other.dtype = DType::kFloat32;
  EXPECT_EQ(stored_format(other, modules, parts), WeightFormat(DType::kFloat32));
}

TEST(StoredFormat, IsOfIntegersOnAGpuThatMultipliesByThem) {
  EXPECT_EQ(format_on_gpu(gptq(128), {128, 64}, 256), WeightFormat::integers(4, 128));
  EXPECT_EQ(format_on_gpu(gptq(0), {48}, 72), WeightFormat::integers(4, 0));
  EXPECT_EQ(format_on_gpu(gptq(16), {128}, 256), kDense);
  WeightScheme sorted = gptq(32);
  sorted.act_order = true;
  EXPECT_EQ(format_on_gpu(sorted, {128}, 256), WeightFormat::integers(4, 32));
  // A rank with some of the inputs has parts of many groups.
  const std::vector<StoredModule> modules{{"a", sorted}};
  Placement gpu = on_cpu(DType::kBFloat16);
  gpu.device = {.type = DeviceType::kCuda, .compute_capability = 90};
  EXPECT_EQ(stored_format(gpu, modules, {{{64, 256}, {0, 64}, {128, 256}}}), kDense);
  gpu.device.compute_capability = 80;
  EXPECT_EQ(stored_format(gpu, modules, {{{64, 256}, {0, 64}, {0, 256}}}), kDense);
}

// Where one rank's parts do not begin with blocks, no rank has them: all decide alike.
TEST(StoredFormat, HasBlocksOnAGpuWhereEachPartBeginsWithOne) {
  const WeightFormat blocks = WeightFormat::float8(ops::kFloat8Block);
  EXPECT_EQ(format_on_gpu(kFloat8Blocks, {256, 128, 128}, 384), blocks);
  EXPECT_EQ(format_on_gpu(kFloat8Blocks, {256, 128, 48}, 384), blocks);
  EXPECT_EQ(format_on_gpu(kFloat8Blocks, {256, 64, 64}, 384), kDense);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(format_on_gpu(kFloat8Blocks, {512, 256}, 384, rank, 2), blocks);
    EXPECT_EQ(format_on_gpu(kFloat8Blocks, {512, 128}, 384, rank, 2), kDense);
    EXPECT_EQ(format_on_gpu(kFloat8Blocks, {160}, 384, rank, 2), kDense);
  }
  WeightScheme other = kFloat8Blocks;
  other.group_outputs = 64;
  EXPECT_EQ(format_on_gpu(other, {256}, 384), kDense);
  other = kFloat8Blocks;
  other.group_outputs = 1;
  EXPECT_EQ(format_on_gpu(other, {256}, 384), kDense);
}

// Tensors of [8, 64] in groups of 32, as a config may describe them wrongly.
class GptqMatrix : public ::testing::Test {
 protected:
  void store(std::vector<int32_t> zeros, std::vector<int32_t> groups) {
    std::vector<int32_t> numbers(8 * 8, 0x76543210);
    std::vector<float> scales(2 * 8, 0.5f);
    store_leaf(0, Tensor(numbers.data(), DType::kInt32, {8, 8}));
    store_leaf(1, Tensor(scales.data(), DType::kFloat32, {2, 8}));
    store_leaf(2, Tensor(zeros.data(), DType::kInt32, {2, 1}));
    store_leaf(3, Tensor(groups.data(), DType::kInt32, {64, 1}));
    ThreadPool pool(2);
    matrix_.finish(pool);
  }

  void store_leaf(size_t leaf, const Tensor& source) {
    matrix_.store({.tensor = leaf, .source = source});
  }

  // Zero points of half the range.
  const std::vector<int32_t> kSymmetric = std::vector<int32_t>(2, static_cast<int32_t>(0x88888888));

  static std::vector<int32_t> in_order() {
    std::vector<int32_t> groups(64);
    for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int32_t>(i / 32);
    return groups;
  }

  std::vector<float> row(int64_t i) const {
    std::vector<float> values(64);
    matrix_.weight().unpack_row(i, values.data());
    return values;
  }

  MatrixParameter matrix_{on_cpu(DType::kFloat32),
                          MatrixFormat{{{"a", gptq(32)}}},
                          8,
                          64,
                          {{{8, 64}, {0, 8}, {0, 64}}}};
};

TEST_F(GptqMatrix, IsOfIntegersWhereAllIsAsDescribed) {
  store(kSymmetric, in_order());
  EXPECT_EQ(matrix_.weight().format(), WeightFormat::integers(4, 32));
  EXPECT_EQ(row(3)[0], -4.0f);
  EXPECT_EQ(row(3)[63], -0.5f);
}

TEST_F(GptqMatrix, IsOfIntegersWithRandomWeights) {
  ParameterMap parameters;
  parameters.add("a", matrix_);
  ThreadPool pool(1);
  fill_dummy_weights(parameters, 1, pool, {});
  EXPECT_EQ(matrix_.weight().format(), WeightFormat::integers(4, 32));
}

// No value is changed, whatever the config says of zero points and order.
TEST_F(GptqMatrix, IsDenseWhereZeroPointsAreNotSymmetric) {
  store({static_cast<int32_t>(0x88888888), static_cast<int32_t>(0x88888878)}, in_order());
  EXPECT_EQ(matrix_.weight().format(), WeightFormat(DType::kFloat32));
  EXPECT_EQ(row(0)[63], -0.5f);
  EXPECT_EQ(row(1)[63], 0.0f);
}

TEST_F(GptqMatrix, SortsItsInputsByGroups) {
  std::vector<int32_t> groups = in_order();
  std::swap(groups[5], groups[40]);
  store(kSymmetric, groups);
  EXPECT_EQ(matrix_.weight().format(), WeightFormat::integers(4, 32));
  ASSERT_NE(matrix_.weight().permutation(), nullptr);
  EXPECT_EQ(matrix_.weight().permutation()[5], 6);
  EXPECT_EQ(row(2)[5], -1.5f);
  EXPECT_EQ(row(2)[40], -4.0f);
  EXPECT_EQ(row(2)[63], -0.5f);
}

TEST_F(GptqMatrix, IsDenseWhereGroupsAreOfOtherSizes) {
  std::vector<int32_t> groups = in_order();
  groups[40] = 0;
  store(kSymmetric, groups);
  EXPECT_EQ(matrix_.weight().format(), WeightFormat(DType::kFloat32));
  EXPECT_EQ(row(2)[5], -1.5f);
  EXPECT_EQ(row(2)[40], -4.0f);
}

}  // namespace
}  // namespace quire
