#include "runner/gpu_lora_slots.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace quire {
namespace {

// Arrays of a step, in the host's memory.
struct FilledItems {
  explicit FilledItems(const StepShape& shape)
      : items(static_cast<size_t>(shape.num_lora_items)),
        rows(static_cast<size_t>(shape.num_tokens)) {
    arrays.loras = {.items = items.data(), .num_items = &num_items, .rows = rows.data()};
  }

  std::vector<ops::LoraItem> items;
  std::vector<int32_t> rows;
  int32_t num_items = 0;
  StepArrays arrays;
};

TEST(GpuLoraSlots, RowsAreInItemsOfTheirSlot) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 300; ++trial) {
    const auto draw = [&random](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const int64_t max_loras = draw(1, 20);
    std::vector<int32_t> row_slots(static_cast<size_t>(draw(1, 200)));
    for (int32_t& slot : row_slots) slot = static_cast<int32_t>(draw(-1, max_loras - 1));
    StepShape shape;
    // Rows more than the step has, as captured steps are padded.
    shape.num_tokens = std::ssize(row_slots) + draw(0, 20);
    shape.num_lora_items = lora_item_room(shape.num_tokens, max_loras);
    FilledItems filled(shape);
    fill_lora_items(row_slots, shape, filled.arrays);
    ASSERT_LE(filled.num_items, shape.num_lora_items);
    std::set<int32_t> seen;
    for (int32_t i = 0; i < filled.num_items; ++i) {
      const ops::LoraItem& item = filled.items[static_cast<size_t>(i)];
      ASSERT_GE(item.count, 1);
      ASSERT_LE(item.count, ops::kLoraItemRows);
      for (int32_t at = item.first; at < item.first + item.count; ++at) {
        const int32_t row = filled.rows.at(static_cast<size_t>(at));
        EXPECT_TRUE(seen.insert(row).second) << "row " << row << " comes twice";
        const bool is_padding = row >= std::ssize(row_slots);
        EXPECT_EQ(item.slot, is_padding ? -1 : row_slots[static_cast<size_t>(row)]);
      }
    }
    EXPECT_EQ(std::ssize(seen), shape.num_tokens);
  }
}

// Rows of logits have the adapters of the step's rows that they are of.
TEST(GpuLoraSlots, RowsOfLogitsAreInItemsOfTheirSlot) {
  const std::vector<int32_t> row_slots = {1, 1, -1, 0, 0, 0};
  const StepLoras with_output = {.row_slots = row_slots, .extras = {.output = true}};
  StepShape shape;
  shape.num_tokens = 8;  // the last two are padding
  shape.num_logits = 5;
  shape_lora_items(with_output, 2, shape);
  ASSERT_GT(shape.num_lora_items, 0);
  ASSERT_GT(shape.num_lora_logits_items, 0);
  FilledItems filled(shape);
  std::vector<int32_t> logits_rows = {1, 2, 5, 7, 3};
  std::vector<ops::LoraItem> items(static_cast<size_t>(shape.num_lora_logits_items));
  std::vector<int32_t> rows(logits_rows.size());
  int32_t num_items = 0;
  filled.arrays.logits_rows = logits_rows.data();
  filled.arrays.lora_logits = {.items = items.data(), .num_items = &num_items, .rows = rows.data()};
  fill_lora_items(row_slots, shape, filled.arrays);
  ASSERT_EQ(num_items, 3);
  EXPECT_EQ(rows, (std::vector<int32_t>{1, 3, 2, 4, 0}));
  const std::vector<std::vector<int32_t>> expected = {{-1, 0, 2}, {0, 2, 2}, {1, 4, 1}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ((std::vector<int32_t>{items[i].slot, items[i].first, items[i].count}), expected[i]);
  }
}

// What no adapter of a step changes has no room in its arrays.
TEST(GpuLoraSlots, OnlyStepsThatNeedThemHaveItemsOfLogits) {
  StepShape shape;
  shape.num_tokens = 4;
  shape.num_logits = 4;
  shape_lora_items({}, 2, shape);
  EXPECT_EQ(shape.num_lora_items, 0);
  const std::vector<int32_t> row_slots = {0, 0, 1, -1};
  shape_lora_items({.row_slots = row_slots, .extras = {.embedding = true, .norms = true}}, 2,
                   shape);
  EXPECT_GT(shape.num_lora_items, 0);
  EXPECT_EQ(shape.num_lora_logits_items, 0);
}

TEST(GpuLoraSlots, ItemsAreFullWhereTheyCanBe) {
  StepShape shape;
  constexpr int64_t kRows = 2 * ops::kLoraItemRows + 8;
  shape.num_tokens = kRows;
  shape.num_lora_items = lora_item_room(kRows, 1);
  FilledItems filled(shape);
  fill_lora_items(std::vector<int32_t>(kRows, 0), shape, filled.arrays);
  ASSERT_EQ(filled.num_items, 3);
  EXPECT_EQ(filled.items[0].count, ops::kLoraItemRows);
  EXPECT_EQ(filled.items[1].count, ops::kLoraItemRows);
  EXPECT_EQ(filled.items[2].count, 8);
}

// Arrays of LoraRowOrder, in the host's memory.
struct FilledOrder {
  explicit FilledOrder(const StepShape& shape)
      : rows(static_cast<size_t>(shape.num_tokens)),
        wide_rows(rows.size()),
        logits_rows(static_cast<size_t>(shape.num_logits)),
        wide_logits_rows(logits_rows.size()) {
    arrays.lora_order = {.rows = rows.data(), .wide_rows = wide_rows.data()};
    arrays.lora_logits_order = {.rows = logits_rows.data(), .wide_rows = wide_logits_rows.data()};
  }

  std::vector<int32_t> rows;
  std::vector<int64_t> wide_rows;
  std::vector<int32_t> logits_rows;
  std::vector<int64_t> wide_logits_rows;
  StepArrays arrays;
};

// Each row is once in a group of its slot, in order, and counted from its block's beginning.
TEST(GpuLoraSlots, RowsAreOrderedBySlotsInEachBlock) {
  std::mt19937 random(4);
  for (const int64_t num_rows : {int64_t{1}, int64_t{300}, 2 * LoraRowOrder::kBlockRows + 7}) {
    std::vector<int32_t> row_slots(static_cast<size_t>(num_rows));
    for (int32_t& slot : row_slots) slot = static_cast<int32_t>(random() % 4) - 1;
    StepShape shape;
    shape.num_tokens = num_rows;
    FilledOrder filled(shape);
    const LoraGroups groups = fill_lora_order(row_slots, shape, filled.arrays);
    EXPECT_TRUE(groups.logits.empty());
    std::set<int64_t> seen;
    int64_t begin = 0;
    for (const LoraRowGroup& group : groups.tokens) {
      EXPECT_EQ(group.begin, begin);
      begin += group.count;
      const int64_t block = group.first_row / LoraRowOrder::kBlockRows * LoraRowOrder::kBlockRows;
      int64_t last = group.first_row - 1;
      for (int64_t at = group.begin; at < begin; ++at) {
        const int64_t row = block + filled.rows.at(static_cast<size_t>(at));
        EXPECT_EQ(filled.wide_rows[static_cast<size_t>(at)], row - block);
        EXPECT_EQ(row_slots.at(static_cast<size_t>(row)), group.slot);
        EXPECT_LT(row, block + LoraRowOrder::kBlockRows);
        EXPECT_GT(row, last);
        EXPECT_TRUE(seen.insert(row).second) << "row " << row << " comes twice";
        last = row;
      }
      EXPECT_EQ(group.is_run, last - group.first_row + 1 == group.count);
    }
    EXPECT_EQ(begin, num_rows);
  }
}

TEST(GpuLoraSlots, RowsOfLogitsAreOrderedByTheSlotsOfTheirRows) {
  const std::vector<int32_t> row_slots = {1, 1, -1, 0, 0, 0};
  StepShape shape;
  shape.num_tokens = 6;
  shape.num_logits = 4;
  FilledOrder filled(shape);
  std::vector<int32_t> logits_rows = {1, 3, 0, 5};
  filled.arrays.logits_rows = logits_rows.data();
  const LoraGroups groups = fill_lora_order(row_slots, shape, filled.arrays);
  ASSERT_EQ(groups.logits.size(), 2U);
  EXPECT_EQ(groups.logits[0].slot, 0);
  EXPECT_EQ(groups.logits[0].first_row, 1);
  EXPECT_FALSE(groups.logits[0].is_run);
  EXPECT_EQ(groups.logits[1].slot, 1);
  EXPECT_EQ(filled.logits_rows, (std::vector<int32_t>{1, 3, 0, 2}));
  for (const LoraRowGroup& group : groups.tokens) EXPECT_TRUE(group.is_run);
}

ModelOptions small_model(int size) {
  ModelOptions model;
  ModelConfig& config = model.config;
  config.architecture = "Qwen3ForCausalLM";
  config.model_type = "qwen3";
  config.vocab_size = 130;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.max_position_embeddings = 256;
  config.layer_sliding_window.assign(3, 0);
  model.dtype = DType::kBFloat16;
  model.max_model_len = 256;
  model.size = size;
  model.device.type = DeviceType::kCuda;
  return model;
}

// Each matrix takes whole pieces of 256 bytes.
TEST(LoraCopyNeeds, AreThoseOfTheRankThatHasMost) {
  const std::vector<std::string> modules = {"model.embed_tokens", "model.layers.0.self_attn.k_proj",
                                            "model.layers.1.mlp.down_proj",
                                            "model.layers.2.mlp.down_proj", "lm_head"};
  const int64_t table = 130 * 64 * 2;
  const int64_t keys = 32 * 64 * 2;
  const int64_t down = 64 * 96 * 2;
  EXPECT_EQ(lora_copy_needs(small_model(1), 1, modules).bytes, 2 * table + keys + 2 * down);
  // 33 rows of a table of the 130, and a head of keys that two ranks have.
  EXPECT_EQ(lora_copy_needs(small_model(4), 1, modules).bytes, 2 * 4352 + keys / 2 + down / 2);
  ModelOptions stages = small_model(1);
  stages.stage_layers = {1, 2};
  EXPECT_EQ(lora_copy_needs(stages, 2, modules).bytes, 2 * down + table);
  EXPECT_EQ(lora_copy_needs(small_model(1), 1, {}).bytes, 0);
}

TEST(LoraCopyNeeds, NameAModuleWhosePartsAreNotAligned) {
  const std::vector<std::string> modules = {"model.layers.0.mlp.down_proj",
                                            "model.layers.0.mlp.up_proj"};
  EXPECT_FALSE(lora_copy_needs(small_model(4), 1, modules).misaligned);
  ModelOptions odd = small_model(4);
  odd.config.intermediate_size = 80;  // 20 on a rank
  EXPECT_EQ(lora_copy_needs(odd, 1, modules).misaligned, "model.layers.0.mlp.up_proj");
  EXPECT_FALSE(lora_copy_needs(odd, 1, std::vector{modules.front()}).misaligned);
}

}  // namespace
}  // namespace quire
