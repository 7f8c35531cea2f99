#include "layers/gguf_weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "layers/parameters.h"
#include "loader/gguf_blocks.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr const char* kBlockTypes[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",   "Q2_K",
                                       "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"};

constexpr int64_t kInputs = 512;

// A tensor [rows, kInputs] of random blocks, and what they stand for.
struct BlockTensor {
  const GgufType* type;
  int64_t rows;
  int64_t row_bytes;
  std::vector<std::byte> blocks;
  std::vector<float> values;

  BlockTensor(const std::string& name, int64_t num_rows, std::mt19937& random)
      : type(find_gguf_type(name)),
        rows(num_rows),
        row_bytes(kInputs / type->block_values * type->block_bytes) {
    const int64_t num_blocks = rows * kInputs / type->block_values;
    for (int64_t i = 0; i < num_blocks; ++i) add_block(random);
  }

  // One whose numbers are finite: any bytes are a block.
  void add_block(std::mt19937& random) {
    std::vector<std::byte> block(static_cast<size_t>(type->block_bytes));
    std::vector<float> numbers(static_cast<size_t>(type->block_values), NAN);
    while (!std::isfinite(numbers.front()) || !std::isfinite(numbers.back())) {
      for (std::byte& byte : block) byte = static_cast<std::byte>(random());
      dequantise_gguf(*type, block.data(), 1, numbers.data());
    }
    blocks.insert(blocks.end(), block.begin(), block.end());
    values.insert(values.end(), numbers.begin(), numbers.end());
  }

  // The blocks of these rows that have these columns.
  Tensor rows_of_blocks(IndexRange taken, IndexRange columns) {
    const int64_t first = columns.begin / type->block_values * type->block_bytes;
    const int64_t end =
        (columns.end + type->block_values - 1) / type->block_values * type->block_bytes;
    return Tensor(blocks.data(), DType::kUInt8, {rows, row_bytes})
        .rows(taken.begin, taken.end)
        .columns(first, end);
  }
};

ParameterPart part_of_rows(int64_t rows, IndexRange columns, int64_t first_row = 0) {
  return {.shape = {rows, kInputs}, .rows = {0, rows}, .columns = columns, .first_row = first_row};
}

// A weight of these tensors, one below the other; the rank has these columns.
MatrixParameter make_parameter(std::vector<BlockTensor>& tensors, IndexRange columns,
                               const Placement& place) {
  MatrixFormat format;
  std::vector<ParameterPart> parts;
  int64_t rows = 0;
  for (const BlockTensor& tensor : tensors) {
    format.modules.push_back({"a", WeightScheme::gguf_blocks(*tensor.type)});
    parts.push_back(part_of_rows(tensor.rows, columns, rows));
    rows += tensor.rows;
  }
  return MatrixParameter(place, format, rows, columns.size(), parts);
}

// Stores the tensors in two pieces each, as tasks of a loader do.
void store_blocks(std::vector<BlockTensor>& tensors, IndexRange columns,
                  MatrixParameter& parameter) {
  int64_t first_row = 0;
  for (BlockTensor& tensor : tensors) {
    const int64_t half = tensor.rows / 2;
    for (const IndexRange rows : {IndexRange{0, half}, IndexRange{half, tensor.rows}}) {
      parameter.store({.tensor = 0,
                       .first_row = first_row + rows.begin,
                       .source = tensor.rows_of_blocks(rows, columns)});
    }
    first_row += tensor.rows;
  }
}

// Bit for bit.
void expect_values(const std::vector<BlockTensor>& tensors, IndexRange columns,
                   const ops::Weight& weight) {
  std::vector<float> row(static_cast<size_t>(weight.k()));
  int64_t at = 0;
  for (const BlockTensor& tensor : tensors) {
    for (int64_t i = 0; i < tensor.rows; ++i, ++at) {
      weight.unpack_row(at, row.data());
      ASSERT_EQ(std::memcmp(row.data(), tensor.values.data() + i * kInputs + columns.begin,
                            row.size() * sizeof(float)),
                0)
          << tensor.type->name << " row " << i;
    }
  }
}

Placement of_bfloat16() {
  Placement place;
  place.dtype = DType::kBFloat16;
  return place;
}

ops::WeightFormat check_round_trip(const std::vector<std::string>& types, IndexRange columns) {
  std::mt19937 random(1);
  std::vector<BlockTensor> tensors;
  for (const std::string& type : types) tensors.emplace_back(type, 40, random);
  MatrixParameter parameter = make_parameter(tensors, columns, of_bfloat16());
  store_blocks(tensors, columns, parameter);
  expect_values(tensors, columns, parameter.weight());
  EXPECT_TRUE(parameter.weight().format().rounds_activations);
  return parameter.weight().format();
}

TEST(GgufWeight, HoldsWhatEachTypesBlocksStandForBitForBit) {
  for (const char* type : kBlockTypes) {
    SCOPED_TRACE(type);
    const ops::WeightFormat format = check_round_trip({type}, {0, kInputs});
    const GgufIntegers& integers = *gguf_integers(*find_gguf_type(type));
    EXPECT_EQ(format.kind, integers.bits == 4 ? ops::WeightKind::kInt4 : ops::WeightKind::kInt8);
    EXPECT_EQ(format.group_size, integers.group_size);
    EXPECT_EQ(format.has_offsets, integers.has_offsets);
    EXPECT_EQ(format.scale_dtype, integers.factors != nullptr ? DType::kInt8 : DType::kFloat32);
    // A rank that begins with the second block of 256.
    EXPECT_EQ(check_round_trip({type}, {256, 400}).scale_dtype, format.scale_dtype);
    // A rank that begins within a block and within a group.
    const ops::WeightFormat cut = check_round_trip({type}, {80, 400});
    EXPECT_EQ(cut.group_size, 16);
    EXPECT_EQ(cut.scale_dtype, DType::kFloat32);
  }
}

TEST(GgufWeight, HoldsPartsOfDifferentTypesBitForBit) {
  for (const char* first : kBlockTypes) {
    for (const char* second : kBlockTypes) {
      SCOPED_TRACE(std::string(first) + " and " + second);
      check_round_trip({first, second}, {0, kInputs});
    }
  }
  const ops::WeightFormat format = check_round_trip({"Q4_K", "Q4_K", "Q6_K"}, {0, kInputs});
  EXPECT_EQ(format.kind, ops::WeightKind::kInt8);
  EXPECT_EQ(format.group_size, 16);
  EXPECT_TRUE(format.has_offsets);
  EXPECT_EQ(format.scale_dtype, DType::kInt8);
  EXPECT_EQ(check_round_trip({"Q4_K", "Q8_0"}, {0, kInputs}).scale_dtype, DType::kFloat32);
  EXPECT_EQ(check_round_trip({"Q4_K", "Q4_1"}, {0, kInputs}).kind, ops::WeightKind::kInt4);
}

// Whole, and where a rank begins within a block.
TEST(GgufWeight, RefusesScalesThatAreNotFinite) {
  std::mt19937 random(1);
  for (const char* name : kBlockTypes) {
    for (const IndexRange columns : {IndexRange{0, kInputs}, IndexRange{80, kInputs}}) {
      SCOPED_TRACE(name);
      std::vector<BlockTensor> tensors;
      tensors.emplace_back(name, 70, random);
      MatrixParameter parameter = make_parameter(tensors, columns, of_bfloat16());
      const ParameterSlice slice = {.tensor = 0,
                                    .source = tensors.front().rows_of_blocks({0, 70}, columns)};
      EXPECT_NO_THROW(parameter.store(slice));
      // The last block, with random bytes until it holds no numbers.
      const GgufType& type = *tensors.front().type;
      std::vector<float> numbers(static_cast<size_t>(type.block_values));
      std::byte* const last = &tensors.front().blocks.back() + 1 - type.block_bytes;
      do {
        for (int64_t i = 0; i < type.block_bytes; ++i) last[i] = static_cast<std::byte>(random());
        dequantise_gguf(type, last, 1, numbers.data());
      } while (std::isfinite(numbers.front()) && std::isfinite(numbers.back()));
      EXPECT_THROW(parameter.store(slice), Error);
    }
  }
}

TEST(GgufWeight, SaysItsTypes) {
  std::mt19937 random(1);
  std::vector<BlockTensor> tensors;
  for (const char* type : {"Q4_K", "Q4_K", "Q6_K"}) tensors.emplace_back(type, 4, random);
  const MatrixParameter parameter = make_parameter(tensors, {0, kInputs}, Placement());
  EXPECT_EQ(parameter.stored_as(), "GGUF Q4_K and Q6_K");
  EXPECT_FALSE(parameter.weight().format().rounds_activations);
  for (const ParameterPart& part : parameter.tensors().front().parts) {
    EXPECT_NE(part.block_type, nullptr);
  }
}

// What the options round is dequantised as it is read.
TEST(GgufWeight, IsRoundedWhereThatIsAskedFor) {
  std::mt19937 random(1);
  std::vector<BlockTensor> tensors;
  tensors.emplace_back("Q6_K", 4, random);
  Placement place = of_bfloat16();
  place.rounding = WeightRounding::kInt4;
  const MatrixParameter parameter = make_parameter(tensors, {0, kInputs}, place);
  EXPECT_EQ(parameter.weight().format().kind, ops::WeightKind::kInt4);
  EXPECT_EQ(parameter.tensors().front().parts.front().block_type, nullptr);
  place.rounding = WeightRounding::kFloat8;
  const MatrixParameter float8 = make_parameter(tensors, {0, kInputs}, place);
  EXPECT_EQ(float8.weight().format(), ops::WeightFormat::float8());
  EXPECT_EQ(float8.tensors().front().parts.front().block_type, nullptr);
}

TEST(GgufWeight, TakesRandomNumbers) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-kDummyBound, kDummyBound);
  std::vector<float> numbers(static_cast<size_t>(20 * kInputs));
  for (float& number : numbers) number = uniform(random);
  for (const char* type : kBlockTypes) {
    std::vector<BlockTensor> tensors;
    tensors.emplace_back(type, 20, random);
    MatrixParameter parameter = make_parameter(tensors, {0, kInputs}, Placement());
    parameter.store(
        {.tensor = 0, .source = Tensor(numbers.data(), DType::kFloat32, {20, kInputs})});
    std::vector<float> row(static_cast<size_t>(kInputs));
    parameter.weight().unpack_row(19, row.data());
    for (size_t i = 0; i < row.size(); ++i) {
      EXPECT_NEAR(row[i], numbers[19 * row.size() + i], kDummyBound / 8) << type;
    }
  }
}

}  // namespace
}  // namespace quire
