#include "loader/gguf_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/temporary_folder_test_util.h"
#include "loader/gguf_blocks.h"
#include "loader/gguf_test_util.h"
#include "loader/tensor_rows.h"
#include "loader/tensor_statistics.h"
#include "quire/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kF32Number = 0;
constexpr uint32_t kQ8Number = 8;

// 0, 1, 2, ... as float32.
std::string counting_floats(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += number_bytes(static_cast<float>(i));
  return bytes;
}

// Rows of Q8_0 in which value i of row r is r + i / 64.
std::string q8_rows(size_t rows, size_t columns) {
  std::string bytes;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      if (column % 32 == 0) bytes += number_bytes(Float16(0.5f).bits);
      bytes += static_cast<char>(2 * row + column / 32);
    }
  }
  return bytes;
}

class GgufCheckpointTest : public testing::Test {
 protected:
  Checkpoint open(const GgufWriter& writer) const {
    const fs::path path = temporary_.path() / "m.gguf";
    std::ofstream(path, std::ios::binary) << writer.str();
    return Checkpoint::open(path);
  }
  std::string error_of(const GgufWriter& writer) const {
    try {
      open(writer);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  static GgufWriter model(const std::string& architecture, uint32_t heads, uint32_t kv_heads) {
    GgufWriter writer;
    return writer.text("general.architecture", architecture)
        .integer(architecture + ".attention.head_count", heads)
        .integer(architecture + ".attention.head_count_kv", kv_heads);
  }
  static std::vector<float> read(const CheckpointTensor& tensor, IndexRange rows,
                                 IndexRange columns) {
    std::vector<std::byte> scratch;
    const Tensor values = read_rows(tensor, DType::kFloat32, rows, columns, scratch);
    std::vector<float> result;
    for (int64_t row = 0; row < values.dim(0); ++row) {
      const float* first = values.row<float>(row);
      result.insert(result.end(), first, first + values.dim(1));
    }
    return result;
  }

  const TemporaryFolder temporary_;
};

TEST_F(GgufCheckpointTest, TensorsHaveHuggingFaceNames) {
  GgufWriter writer = model("phi3", 1, 1);
  const std::vector<std::pair<const char*, const char*>> names = {
      {"token_embd.weight", "model.embed_tokens.weight"},
      {"output.weight", "lm_head.weight"},
      {"output_norm.weight", "model.norm.weight"},
      {"blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight"},
      {"blk.11.attn_qkv.weight", "model.layers.11.self_attn.qkv_proj.weight"},
      {"blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias"},
      {"blk.0.attn_k_norm.weight", "model.layers.0.self_attn.k_norm.weight"},
      {"blk.0.attn_output.weight", "model.layers.0.self_attn.o_proj.weight"},
      {"blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"},
      {"blk.0.ffn_up.weight", "model.layers.0.mlp.gate_up_proj.weight"},
      {"blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"},
      {"blk.0.ssm_a", "blk.0.ssm_a"},
      {"other.weight", "other.weight"}};
  for (const auto& [name, expected] : names) writer.tensor(name, kF32Number, {1}, "abcd");
  writer.tensor("rope_factors_long.weight", kF32Number, {1}, "abcd");
  const Checkpoint checkpoint = open(writer);
  ASSERT_EQ(checkpoint.tensors().size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(checkpoint.tensors()[i].name, names[i].second);
    EXPECT_EQ(checkpoint.tensors()[i].name_in_file(), names[i].first);
    EXPECT_EQ(checkpoint.name_in_files(names[i].second), names[i].first);
  }
  EXPECT_EQ(open(model("qwen3", 1, 1).tensor("blk.0.ffn_up.weight", kF32Number, {1}, "abcd"))
                .tensors()[0]
                .name,
            "model.layers.0.mlp.up_proj.weight");
}

TEST_F(GgufCheckpointTest, LlamasRotaryOrderIsUndone) {
  // Two heads of 4 rows for queries, one for keys: the converter writes rows 0, 2, 1, 3 of a head.
  GgufWriter writer = model("llama", 2, 1);
  writer.tensor("blk.0.attn_q.weight", kF32Number, {8, 1}, counting_floats(8))
      .tensor("blk.0.attn_k.bias", kF32Number, {4}, counting_floats(4))
      .tensor("blk.0.attn_v.weight", kF32Number, {4, 1}, counting_floats(4));
  const Checkpoint checkpoint = open(writer);
  EXPECT_THAT(read(checkpoint.tensors()[0], {0, 8}, {0, 1}), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(read(checkpoint.tensors()[0], {5, 7}, {0, 1}), ElementsAre(6, 5));
  EXPECT_THAT(read(checkpoint.tensors()[1], {0, 4}, {0, 1}), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(read(checkpoint.tensors()[2], {0, 4}, {0, 1}), ElementsAre(0, 1, 2, 3));

  GgufWriter qwen = model("qwen2", 2, 1);
  qwen.tensor("blk.0.attn_q.weight", kF32Number, {8, 1}, counting_floats(8));
  EXPECT_THAT(read(open(qwen).tensors()[0], {0, 4}, {0, 1}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(error_of(model("llama", 2, 1)
                           .tensor("blk.0.attn_q.weight", kF32Number, {6, 1}, counting_floats(6))),
              HasSubstr("has 6 rows; expected an even number for each of the 2 heads"));
}

TEST_F(GgufCheckpointTest, BlocksAreDequantisedAtAnyColumns) {
  GgufWriter writer = model("llama", 1, 1);
  writer.tensor("blk.0.attn_q.weight", kQ8Number, {4, 96}, q8_rows(4, 96));
  const Checkpoint checkpoint = open(writer);
  const CheckpointTensor& tensor = checkpoint.tensors()[0];
  EXPECT_EQ(tensor.describe(), "[4, 96] Q8_0");
  const std::vector<float> all = read(tensor, {0, 4}, {0, 96});
  // Rows 0, 2, 1, 3 of the file.
  EXPECT_EQ(all[0], 0.0f);
  EXPECT_EQ(all[95], 1.0f);
  EXPECT_EQ(all[96], 2.0f);
  EXPECT_EQ(all[192], 1.0f);
  EXPECT_THAT(read(tensor, {2, 4}, {31, 33}), ElementsAre(1.0f, 1.5f, 3.0f, 3.5f));
  EXPECT_THAT(read(tensor, {1, 2}, {64, 65}), ElementsAre(3.0f));
  EXPECT_TRUE(read(tensor, {1, 2}, {7, 7}).empty());
}

TEST_F(GgufCheckpointTest, BlocksAreReadAsTheyAre) {
  GgufWriter writer = model("llama", 1, 1);
  writer.tensor("blk.0.attn_q.weight", kQ8Number, {4, 96}, q8_rows(4, 96));
  const Checkpoint checkpoint = open(writer);
  const CheckpointTensor& tensor = checkpoint.tensors()[0];
  const GgufType& type = *find_gguf_type("Q8_0");
  std::vector<std::byte> scratch;
  // The second and the third block of rows 1 to 3, which are rows 2, 1 and 3 of the file.
  const Tensor blocks = read_blocks(tensor, type, {1, 4}, {40, 96}, scratch);
  ASSERT_EQ(blocks.dim(0), 3);
  ASSERT_EQ(blocks.dim(1), 2 * 34);
  for (int64_t row = 0; row < 3; ++row) {
    const std::vector<float> expected = read(tensor, {row + 1, row + 2}, {32, 96});
    std::vector<float> values(64);
    dequantise_gguf(type, reinterpret_cast<const std::byte*>(blocks.row<uint8_t>(row)), 2,
                    values.data());
    EXPECT_EQ(values, expected);
  }
}

TEST_F(GgufCheckpointTest, StatisticsAreOfWhatBlocksStandFor) {
  GgufWriter writer = model("qwen2", 1, 1);
  writer.tensor("blk.0.ffn_up.weight", kQ8Number, {4, 64}, q8_rows(4, 64));
  ThreadPool pool(2);
  const TensorStatistics found = statistics_of(open(writer).tensors()[0], pool);
  EXPECT_TRUE(found.is_floating);
  EXPECT_EQ(found.num_values, 256);
  EXPECT_EQ(found.num_zero, 32);
  EXPECT_EQ(found.min, 0.0);
  EXPECT_EQ(found.max, 3.5);
}

TEST_F(GgufCheckpointTest, RefusesWhatCannotBeLoaded) {
  EXPECT_THAT(error_of(model("llama", 1, 1).tensor("x.weight", 16, {1, 256}, std::string(66, 'x'))),
              HasSubstr("the tensor \"x.weight\" is of the type IQ2_XXS; quire reads F32, F16"));
  EXPECT_THAT(
      error_of(model("llama", 1, 1).tensor("x.weight", kQ8Number, {32}, std::string(34, 'x'))),
      HasSubstr("is a vector of the type Q8_0"));
  EXPECT_THAT(error_of(model("llama", 1, 1)
                           .tensor("output.weight", kF32Number, {1}, "abcd")
                           .tensor("lm_head.weight", kF32Number, {1}, "abcd")),
              HasSubstr("are both lm_head.weight"));
}

}  // namespace
}  // namespace quire
