#include "quantise/calibration_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using testing::ElementsAre;

constexpr int64_t kBlock = 2;

TEST(CalibrationStep, ShortWindowsRunTogether) {
  const auto steps = calibration_steps({{1, 2, 3}, {4}, {5, 6}}, 4, kBlock);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_THAT(steps[0].ids, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(steps[0].positions, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(steps[0].query_start, ElementsAre(0, 3, 4));
  EXPECT_THAT(steps[0].lengths, ElementsAre(3, 1));
  EXPECT_THAT(steps[0].blocks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(steps[0].slots, ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(steps[0].logits_rows, ElementsAre(3));
  EXPECT_THAT(steps[1].ids, ElementsAre(5, 6));
  EXPECT_EQ(steps[1].num_blocks(), 1);
}

TEST(CalibrationStep, LongWindowsRunByThemselves) {
  const auto steps = calibration_steps({{1}, {2, 3, 4, 5, 6}, {7}}, 4, kBlock);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[1].num_tokens(), 5);
  EXPECT_EQ(steps[1].num_blocks(), 3);
}

TEST(CalibrationStep, BatchViewsItsArrays) {
  auto steps = calibration_steps({{1, 2, 3}, {4}}, 8, kBlock);
  const ForwardBatch batch = steps[0].batch();
  EXPECT_EQ(batch.num_tokens, 4);
  EXPECT_EQ(batch.num_seqs, 2);
  EXPECT_EQ(batch.max_query_len, 3);
  EXPECT_EQ(batch.block_tables.dim(0), 2);
  EXPECT_EQ(batch.block_tables.dim(1), 2);
  EXPECT_EQ(batch.token_ids.data<int32_t>()[3], 4);
}

}  // namespace
}  // namespace quire
