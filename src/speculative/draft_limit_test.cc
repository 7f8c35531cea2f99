#include "speculative/draft_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace quire::speculative_internal {
namespace {

TEST(StepCost, IsTheSlopeOfItsSteps) {
  StepCost cost;
  for (int i = 0; i < 40; ++i) cost.learn(1 + i % 5, 0.010 + 0.001 * (1 + i % 5));
  // A row of 11 ms and one more: 1 / 11 of a token. Of 20 rows in 30 ms one is 2 / 3.
  EXPECT_NEAR(cost.tokens_per_row(1), 1.0 / 11, 1e-6);
  EXPECT_NEAR(cost.tokens_per_row(20), 2.0 / 3, 1e-6);
}

TEST(StepCost, StaysBetweenNothingAndAStep) {
  StepCost falling;
  for (int i = 0; i < 40; ++i) falling.learn(1 + i % 5, 0.010 - 0.001 * (i % 5));
  EXPECT_EQ(falling.tokens_per_row(3), 0);
  StepCost steep;
  for (int i = 0; i < 40; ++i) steep.learn(1 + i % 5, 0.001 * (1 + i % 5) * (1 + i % 5));
  EXPECT_LE(steep.tokens_per_row(5), 1);
  EXPECT_GT(steep.tokens_per_row(5), 0.9);
}

TEST(StepCost, StepsOfOneSizeTellNothing) {
  StepCost cost;
  const double before = cost.tokens_per_row(1);
  for (int i = 0; i < 40; ++i) cost.learn(1, 0.010);
  EXPECT_EQ(cost.tokens_per_row(1), before);
  EXPECT_GT(before, 0);
  EXPECT_LT(before, 1);
  EXPECT_GT(cost.tokens_per_row(64), before);
}

TEST(StepCost, RemembersWhatARowCosts) {
  StepCost cost;
  for (int i = 0; i < 40; ++i) cost.learn(1 + i % 5, 0.010 + 0.001 * (1 + i % 5));
  for (int i = 0; i < 1000; ++i) cost.learn(5, 0.015);
  EXPECT_NEAR(cost.tokens_per_row(1), 1.0 / 11, 1e-3);
}

TEST(StepCost, OneSlowStepChangesLittle) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) cost.learn(1 + i % 5, 0.010 + 0.001 * (1 + i % 5));
  cost.learn(5, 10.0);
  EXPECT_LT(cost.tokens_per_row(1), 0.3);
}

// A GPU reads its weights for a few rows as for many, until arithmetic fills it.
TEST(StepCost, StepsOfFewRowsSayLittleOfMany) {
  const auto step_s = [](int64_t rows) {
    return 0.004 + 0.00004 * static_cast<double>(std::max<int64_t>(0, rows - 128));
  };
  StepCost cost;
  for (int i = 0; i < 300; ++i) {
    const int64_t rows = int64_t{1} << (i % 6);
    cost.learn(rows, step_s(rows));
  }
  EXPECT_NEAR(cost.tokens_per_row(8), 0, 1e-6);
  // A few steps with drafts say what a row costs among so many, and it is not forgotten.
  for (int i = 0; i < 30; ++i) cost.learn(256, step_s(256));
  for (int i = 0; i < 3; ++i) cost.learn(512, step_s(512));
  EXPECT_GT(cost.tokens_per_row(256), 0.8);
  for (int i = 0; i < 500; ++i) cost.learn(256, step_s(256));
  EXPECT_GT(cost.tokens_per_row(256), 0.8);
  EXPECT_LT(cost.tokens_per_row(8), 0.05);
}

TEST(StepCost, SaysWhatAStepTakes) {
  StepCost cost;
  EXPECT_EQ(cost.seconds(3), 0);
  cost.learn(2, 0.018);
  EXPECT_NEAR(cost.seconds(2), 0.018, 1e-9);
  EXPECT_NEAR(cost.seconds(3), 0.020, 1e-9);  // a row more is an eighth of a step of one
  for (int i = 0; i < 400; ++i) cost.learn(1 + i % 5, 0.010 + 0.001 * (1 + i % 5));
  EXPECT_NEAR(cost.seconds(20), 0.030, 1e-4);
}

TEST(StepCost, ARowTakesNoLongerThanAPromptsUntilStepsDiffer) {
  StepCost cost;
  cost.learn_prompts(0.00002);
  for (int i = 0; i < 10; ++i) cost.learn(64, 0.005);
  EXPECT_NEAR(cost.seconds(128), 0.005 + 64 * 0.00002, 1e-9);
  EXPECT_NEAR(cost.tokens_per_row(64), 64 * 0.00002 / 0.005, 1e-9);
  cost.learn_prompts(1.0);  // as a few tokens may take
  EXPECT_NEAR(cost.seconds(128), 0.005 + 64 * 0.005 / 71, 1e-9);
  for (int i = 0; i < 10; ++i) cost.learn(128, 0.006);
  EXPECT_NEAR(cost.seconds(192), 0.007, 1e-4);
}

TEST(DraftLedger, EndsWhereDraftsLose) {
  DraftLedger ledger;
  EXPECT_TRUE(ledger.may_draft());
  ledger.enter(-1.5);
  EXPECT_TRUE(ledger.may_draft());
  ledger.enter(-1.5);
  EXPECT_FALSE(ledger.may_draft());
  // A hundredth of the time goes on being tried.
  ledger.elapse(90);
  EXPECT_FALSE(ledger.may_draft());
  ledger.elapse(20);
  EXPECT_TRUE(ledger.may_draft());
  // What was saved long ago does not pay for it.
  ledger.enter(1000);
  ledger.enter(-2.5);
  EXPECT_FALSE(ledger.may_draft());
}

TEST(Acceptance, LearnsOfTheDraftsUpToTheFirstThatFailed) {
  Acceptance acceptance(0.5, 0.1);
  acceptance.learn(0, 0);
  EXPECT_EQ(acceptance.rate(), 0.5);
  acceptance.learn(4, 1);  // one was kept, one was not, of two nothing is known
  EXPECT_NEAR(acceptance.rate(), (0.5 + 0.05) * 0.9, 1e-12);
  for (int i = 0; i < 200; ++i) acceptance.learn(4, 4);
  EXPECT_NEAR(acceptance.rate(), 1, 1e-6);
}

TEST(WorthwhileDrafts, BringTheMostTokensForTheirTime) {
  // 1.75 tokens in the time of 1.2 is more than 1.5 in 1.1 and 1.875 in 1.3.
  EXPECT_EQ(worthwhile_drafts(0.5, 0.1, 8), 2u);
  EXPECT_EQ(worthwhile_drafts(0.9, 0.1, 8), 8u);
  EXPECT_EQ(worthwhile_drafts(0.05, 0.1, 8), 0u);
  EXPECT_EQ(worthwhile_drafts(0, 0, 8), 0u);
  EXPECT_EQ(worthwhile_drafts(1, 1, 8), 0u);
}

// The first draft takes a slower kind of step, the next ones little more.
TEST(WorthwhileDrafts, MayBeManyWhereOneIsTooFew) {
  const std::vector<double> seconds = {1.0, 1.8, 1.85, 1.9, 1.95};
  EXPECT_EQ(worthwhile_drafts(0.75, seconds), 4u);
  EXPECT_EQ(worthwhile_drafts(0.4, seconds), 0u);
  EXPECT_EQ(worthwhile_drafts(0.9, std::vector<double>{1.0, 1.2, 1.3, 5.0, 6.0}), 2u);
}

TEST(WorthwhileDrafts, ChangeWhereThatBringsMore) {
  const std::vector<double> seconds = {1.0, 1.1, 1.2, 1.3, 1.4};
  // 1.75 tokens in 1.2, 1.5 in 1.1, 1.875 in 1.3, 1.9375 in 1.4, 1 in 1.
  for (const auto& [last, count] : {std::pair(0u, 2u), {1u, 2u}, {2u, 2u}, {3u, 3u}, {4u, 2u}}) {
    EXPECT_EQ(worthwhile_drafts(0.5, seconds, last), count) << last;
  }
  EXPECT_EQ(worthwhile_drafts(0.05, seconds, 4), 0u);
  EXPECT_EQ(worthwhile_drafts(0.5, seconds, 5), 2u) << "more than there may be";
}

}  // namespace
}  // namespace quire::speculative_internal
