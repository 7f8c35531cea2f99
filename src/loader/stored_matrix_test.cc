// Each layout, written by formulas as it is published, and read back by any share of a rank.
#include "loader/stored_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>

#include "base/ceil_div.h"
#include "quire/error.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kStoredOutputs = 48;
constexpr int64_t kStoredInputs = 96;
constexpr int64_t kStoredGroup = 32;

// A matrix of unsigned numbers of `bits`, by formulas.
struct Numbers {
  int bits = 4;
  int64_t group_size = kStoredGroup;
  bool symmetric = false;
  bool act_order = false;

  int64_t groups() const { return group_size == 0 ? 1 : ceil_div(kStoredInputs, group_size); }
  uint32_t number(int64_t i, int64_t j) const {
    return static_cast<uint32_t>(i * 7 + j * 5 + i * j % 11) % (1u << bits);
  }
  uint32_t zero(int64_t i, int64_t group) const {
    if (symmetric) return 1u << (bits - 1);
    return static_cast<uint32_t>(i * 3 + group) % (1u << bits);
  }
  float scale(int64_t i, int64_t group) const {
    return 0.125f * static_cast<float>(1 + (i + 2 * group) % 5);
  }
  int32_t group(int64_t j) const {
    if (group_size == 0) return 0;
    return static_cast<int32_t>(act_order ? (j * 5 + 1) % kStoredInputs / group_size
                                          : j / group_size);
  }
  float value(int64_t i, int64_t j) const {
    const int difference = static_cast<int>(number(i, j)) - static_cast<int>(zero(i, group(j)));
    return scale(i, group(j)) * static_cast<float>(difference);
  }
};

// A leaf's values, row by row.
using Words = std::vector<uint32_t>;

// A word of the numbers at(0), at(1), ...
uint32_t word_of(int bits, const std::function<uint32_t(int64_t)>& at) {
  uint32_t word = 0;
  for (int place = 0; place < 32 / bits; ++place) word |= at(place) << (place * bits);
  return word;
}

Words by_words(int64_t rows, int64_t columns,
               const std::function<uint32_t(int64_t row, int64_t column)>& word) {
  Words words;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) words.push_back(word(row, column));
  }
  return words;
}

constexpr std::array<int64_t, 8> kAwqOrder{0, 2, 4, 6, 1, 3, 5, 7};

std::map<LeafRole, Words> transposed_words(const WeightScheme& scheme, const Numbers& matrix) {
  const int64_t per_word = 32 / scheme.bits;
  const bool is_awq = scheme.layout == WeightLayout::kAwq;
  const auto output = [&](int64_t word, int64_t place) {
    return word * per_word + (is_awq ? kAwqOrder[static_cast<size_t>(place)] : place);
  };
  std::map<LeafRole, Words> words;
  words[LeafRole::kNumbers] =
      is_awq ? by_words(kStoredInputs, kStoredOutputs / per_word,
                        [&](int64_t j, int64_t word) {
                          return word_of(scheme.bits, [&](int64_t place) {
                            return matrix.number(output(word, place), j);
                          });
                        })
             : by_words(kStoredInputs / per_word, kStoredOutputs, [&](int64_t word, int64_t i) {
                 return word_of(scheme.bits, [&](int64_t place) {
                   return matrix.number(i, word * per_word + place);
                 });
               });
  words[LeafRole::kZeroPoints] =
      by_words(matrix.groups(), kStoredOutputs / per_word, [&](int64_t group, int64_t word) {
        const uint32_t zeros = word_of(
            scheme.bits, [&](int64_t place) { return matrix.zero(output(word, place), group); });
        // As published: one subtraction from the word, borrows and all.
        return scheme.zeros_less_one ? zeros - (scheme.bits == 4 ? 0x11111111u : 0x01010101u)
                                     : zeros;
      });
  words[LeafRole::kGroupOfInput] = by_words(
      kStoredInputs, 1, [&](int64_t j, int64_t) { return static_cast<uint32_t>(matrix.group(j)); });
  return words;
}

std::map<LeafRole, Words> packed_words(const WeightScheme& scheme, const Numbers& matrix) {
  const int64_t per_word = 32 / scheme.bits;
  std::map<LeafRole, Words> words;
  words[LeafRole::kNumbers] =
      by_words(kStoredOutputs, kStoredInputs / per_word, [&](int64_t i, int64_t word) {
        return word_of(scheme.bits,
                       [&](int64_t place) { return matrix.number(i, word * per_word + place); });
      });
  words[LeafRole::kZeroPoints] =
      by_words(kStoredOutputs / per_word, matrix.groups(), [&](int64_t word, int64_t group) {
        return word_of(scheme.bits,
                       [&](int64_t place) { return matrix.zero(word * per_word + place, group); });
      });
  words[LeafRole::kGroupOfInput] = by_words(
      kStoredInputs, 1, [&](int64_t j, int64_t) { return static_cast<uint32_t>(matrix.group(j)); });
  words[LeafRole::kShape] = {kStoredOutputs, kStoredInputs};
  return words;
}

// Stores the rank's share of a leaf [shape] whose elements are `values`, in two pieces. Where
// `is_kept`, the values outlive the matrix.
template <typename T>
void store(StoredMatrix& stored, size_t leaf, DType dtype, const std::vector<T>& values,
           bool is_kept = false) {
  const ParameterPart part = stored.part(leaf);
  const int64_t columns = part.shape.size() == 1 ? 1 : part.shape[1];
  ASSERT_EQ(static_cast<int64_t>(values.size()), part.shape[0] * columns);
  const Tensor whole(const_cast<T*>(values.data()), dtype, {part.shape[0], columns});
  const Tensor share =
      whole.rows(part.rows.begin, part.rows.end).columns(part.columns.begin, part.columns.end);
  const int64_t cut = share.dim(0) / 2;
  stored.store(leaf, cut, share.rows(cut, share.dim(0)), is_kept);
  stored.store(leaf, 0, share.rows(0, cut), is_kept);
}

void store_scales(StoredMatrix& stored, size_t leaf, const Numbers& matrix) {
  const bool is_transposed =
      stored.scheme().layout == WeightLayout::kGptq || stored.scheme().layout == WeightLayout::kAwq;
  std::vector<Float16> scales;
  const int64_t rows = is_transposed ? matrix.groups() : kStoredOutputs;
  const int64_t columns = is_transposed ? kStoredOutputs : matrix.groups();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      scales.emplace_back(is_transposed ? matrix.scale(column, row) : matrix.scale(row, column));
    }
  }
  store(stored, leaf, DType::kFloat16, scales);
}

void store_all(StoredMatrix& stored, const std::map<LeafRole, Words>& words, const Numbers& matrix,
               bool is_kept = false) {
  for (size_t leaf = 0; leaf < stored.leaves().size(); ++leaf) {
    const LeafRole role = stored.leaves()[leaf].role;
    if (role == LeafRole::kScales) {
      store_scales(stored, leaf, matrix);
    } else {
      store(stored, leaf, DType::kInt32, words.at(role), is_kept);
    }
  }
}

std::vector<float> dequantised(const StoredMatrix& stored) {
  const int64_t outputs = stored.share().outputs.size();
  const int64_t inputs = stored.share().inputs.size();
  std::vector<float> values(static_cast<size_t>(outputs * inputs));
  const int64_t cut = outputs / 3;
  stored.dequantise({0, cut}, values.data());
  stored.dequantise({cut, outputs}, values.data() + cut * inputs);
  return values;
}

std::vector<float> expected_values(const Numbers& matrix, const StoredShare& share) {
  std::vector<float> values;
  for (int64_t i = share.outputs.begin; i < share.outputs.end; ++i) {
    for (int64_t j = share.inputs.begin; j < share.inputs.end; ++j) {
      values.push_back(matrix.value(i, j));
    }
  }
  return values;
}

// All, and shares that cut words and groups.
const std::vector<std::pair<IndexRange, IndexRange>> kShares{
    {{0, kStoredOutputs}, {0, kStoredInputs}},
    {{16, 32}, {0, kStoredInputs}},
    {{3, 21}, {0, kStoredInputs}},
    {{0, kStoredOutputs}, {48, 96}},
    {{5, 6}, {13, 77}}};

void expect_values(const WeightScheme& scheme, const Numbers& matrix,
                   const std::map<LeafRole, Words>& words) {
  for (const auto& share : kShares) {
    for (const bool is_kept : {false, true}) {
      StoredMatrix stored(
          scheme, {"a.down_proj", kStoredOutputs, kStoredInputs, share.first, share.second});
      store_all(stored, words, matrix, is_kept);
      stored.set_groups();
      EXPECT_EQ(dequantised(stored), expected_values(matrix, stored.share()))
          << scheme.describe() << " from output " << share.first.begin;
    }
  }
}

TEST(StoredMatrix, Gptq) {
  for (const int bits : {4, 8}) {
    for (const int64_t group_size : {kStoredGroup, int64_t{0}, int64_t{64}}) {
      for (const bool act_order : {false, true}) {
        for (const bool zeros_less_one : {false, true}) {
          const WeightScheme scheme{.name = "GPTQ",
                                    .layout = WeightLayout::kGptq,
                                    .bits = bits,
                                    .group_inputs = group_size,
                                    .symmetric = false,
                                    .act_order = act_order,
                                    .zeros_less_one = zeros_less_one};
          const Numbers matrix{bits, group_size, false, act_order};
          expect_values(scheme, matrix, transposed_words(scheme, matrix));
        }
      }
    }
  }
}

TEST(StoredMatrix, Awq) {
  for (const int64_t group_size : {kStoredGroup, int64_t{0}}) {
    const WeightScheme scheme{.name = "AWQ",
                              .layout = WeightLayout::kAwq,
                              .bits = 4,
                              .group_inputs = group_size,
                              .symmetric = false};
    const Numbers matrix{4, group_size};
    expect_values(scheme, matrix, transposed_words(scheme, matrix));
  }
}

TEST(StoredMatrix, CompressedTensorsPacked) {
  for (const int bits : {4, 8}) {
    for (const int64_t group_size : {kStoredGroup, int64_t{0}}) {
      for (const bool symmetric : {true, false}) {
        for (const bool act_order : {false, true}) {
          const WeightScheme scheme{.name = "pack-quantized",
                                    .layout = WeightLayout::kPacked,
                                    .bits = bits,
                                    .group_inputs = group_size,
                                    .symmetric = symmetric,
                                    .act_order = act_order};
          const Numbers matrix{bits, group_size, symmetric, act_order};
          expect_values(scheme, matrix, packed_words(scheme, matrix));
        }
      }
    }
  }
}

TEST(StoredMatrix, Int8AndItsZeroPoints) {
  const Numbers matrix{.bits = 8, .group_size = 0};
  std::vector<int8_t> numbers, zeros;
  for (int64_t i = 0; i < kStoredOutputs; ++i) {
    zeros.push_back(static_cast<int8_t>(static_cast<int>(matrix.zero(i, 0)) - 128));
    for (int64_t j = 0; j < kStoredInputs; ++j) {
      numbers.push_back(static_cast<int8_t>(static_cast<int>(matrix.number(i, j)) - 128));
    }
  }
  const WeightScheme scheme{
      .name = "int-quantized", .layout = WeightLayout::kInt8, .symmetric = false};
  for (const auto& share : kShares) {
    StoredMatrix stored(scheme, {"a", kStoredOutputs, kStoredInputs, share.first, share.second});
    store(stored, 0, DType::kInt8, numbers);
    store_scales(stored, 1, matrix);
    store(stored, 2, DType::kInt8, zeros);
    stored.set_groups();
    EXPECT_EQ(dequantised(stored), expected_values(matrix, stored.share()));
  }
}

// Scales of the whole matrix, and of blocks that end beyond it.
TEST(StoredMatrix, Float8InBlocks) {
  std::vector<Float8E4M3> numbers;
  for (int64_t i = 0; i < kStoredOutputs * kStoredInputs; ++i) {
    numbers.emplace_back(static_cast<float>(i % 200 - 100));
  }
  for (const auto& block : {std::pair<int64_t, int64_t>{0, 0}, {32, 64}, {1, 0}, {16, 16}}) {
    const int64_t rows = block.first == 0 ? 1 : ceil_div(kStoredOutputs, block.first);
    const int64_t columns = block.second == 0 ? 1 : ceil_div(kStoredInputs, block.second);
    std::vector<float> scales;
    for (int64_t i = 0; i < rows * columns; ++i) scales.push_back(1.0f / static_cast<float>(3 + i));
    const WeightScheme scheme{.name = "fp8",
                              .group_outputs = block.first,
                              .group_inputs = block.second,
                              .scale_leaf = "weight_scale_inv"};
    for (const auto& share : kShares) {
      StoredMatrix stored(scheme, {"a", kStoredOutputs, kStoredInputs, share.first, share.second});
      EXPECT_EQ(stored.leaves()[1].name, "weight_scale_inv");
      store(stored, 0, DType::kFloat8E4M3, numbers);
      store(stored, 1, DType::kFloat32, scales);
      stored.set_groups();
      std::vector<float> expected;
      for (int64_t i = share.first.begin; i < share.first.end; ++i) {
        for (int64_t j = share.second.begin; j < share.second.end; ++j) {
          const int64_t row = block.first == 0 ? 0 : i / block.first;
          const int64_t column = block.second == 0 ? 0 : j / block.second;
          expected.push_back(
              static_cast<float>(numbers[static_cast<size_t>(i * kStoredInputs + j)]) *
              scales[static_cast<size_t>(row * columns + column)]);
        }
      }
      EXPECT_EQ(dequantised(stored), expected);
    }
  }
}

TEST(StoredMatrix, SaysWhatGroupsAndShapesAre) {
  WeightScheme scheme{.name = "pack-quantized",
                      .layout = WeightLayout::kPacked,
                      .bits = 4,
                      .group_inputs = kStoredGroup,
                      .act_order = true};
  const auto rules = [&](int64_t module_outputs) {
    const StoredMatrix stored(
        scheme, {"a", kStoredOutputs, kStoredInputs, {0, 16}, {0, 32}, module_outputs});
    std::map<std::string, IntegerRule> result;
    for (size_t leaf = 0; leaf < stored.leaves().size(); ++leaf) {
      result[stored.leaves()[leaf].name] = stored.part(leaf).integers;
    }
    return result;
  };
  EXPECT_EQ(rules(0).at("weight_g_idx").num_groups, 3);
  EXPECT_TRUE(rules(0).at("weight_g_idx").may_be_unset);
  EXPECT_THAT(rules(0).at("weight_shape").shape, ElementsAre(kStoredOutputs, kStoredInputs));
  EXPECT_THAT(rules(100).at("weight_shape").shape, ElementsAre(100, kStoredInputs));
  const IntegerRule none = rules(0).at("weight_packed");
  EXPECT_TRUE(none.num_groups == 0 && none.shape.empty());
  scheme.layout = WeightLayout::kGptq;  // which has no sign of groups in order
  EXPECT_FALSE(rules(0).at("g_idx").may_be_unset);
}

TEST(StoredMatrix, RefusesSizesThatItsSchemeCannotStore) {
  const auto error_of = [](const WeightScheme& scheme, int64_t inputs) -> std::string {
    try {
      StoredMatrix(scheme, {"a.up_proj", 48, inputs, {0, 48}, {0, inputs}});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  WeightScheme scheme{
      .name = "GPTQ", .layout = WeightLayout::kGptq, .bits = 4, .group_inputs = 128};
  EXPECT_EQ(error_of(scheme, 100),
            "a.up_proj: the layer has 100 inputs, but its scheme (GPTQ, 4 bits, groups of 128) "
            "stores multiples of 8.");
  // Its tools write a last group of fewer inputs; those of the others refuse to.
  EXPECT_EQ(error_of(scheme, 192), "no error");
  for (const WeightLayout layout :
       {WeightLayout::kAwq, WeightLayout::kPacked, WeightLayout::kInt8}) {
    scheme.layout = layout;
    scheme.name = "AWQ";
    EXPECT_EQ(error_of(scheme, 192),
              "a.up_proj: the layer has 192 inputs, but its scheme (AWQ, 4 bits, groups of 128) "
              "stores multiples of 128.");
    EXPECT_EQ(error_of(scheme, 256), "no error");
  }
  // Blocks of float8 may end beyond the matrix.
  scheme.layout = WeightLayout::kFloat8;
  EXPECT_EQ(error_of(scheme, 192), "no error");
}

}  // namespace
}  // namespace quire
