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
    arrays.lora_items = items.data();
    arrays.num_lora_items = &num_items;
    arrays.lora_rows = rows.data();
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

}  // namespace
}  // namespace quire
