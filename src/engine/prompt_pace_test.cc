#include "engine/prompt_pace.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

// A step of 100 tokens took 0.1 s.
PromptPace learnt_pace(double target_s, int64_t max_tokens = 2048) {
  PromptPace pace(target_s, max_tokens);
  pace.learn(100, 0, 0.1);
  return pace;
}

TEST(PromptPace, WithoutATargetAStepIsFull) {
  EXPECT_EQ(PromptPace(0, 2048).max_prompt_tokens(5), 2048);
  EXPECT_EQ(learnt_pace(0).max_prompt_tokens(5), 2048);
}

TEST(PromptPace, BeforeAnyTimeThereIsAFirstChunk) {
  const PromptPace pace(0.1, 2048);
  EXPECT_EQ(pace.max_prompt_tokens(5), PromptPace::kFirstChunk);
  EXPECT_EQ(pace.logprobs_cost(), 1);
  EXPECT_EQ(pace.expected_s(100, 10), 0);
}

TEST(PromptPace, SequencesThatDecodeTakeTheirPartOfTheTarget) {
  const PromptPace pace = learnt_pace(0.25);
  EXPECT_EQ(pace.max_prompt_tokens(50), 200);
  EXPECT_EQ(pace.max_prompt_tokens(240), PromptPace::kLeastChunk);
  EXPECT_DOUBLE_EQ(pace.expected_s(300, 0), 0.3);
}

TEST(PromptPace, WhereNothingDecodesAStepIsLonger) {
  EXPECT_EQ(learnt_pace(0.0625).max_prompt_tokens(0), 250);  // four times the target
  EXPECT_EQ(learnt_pace(0.25).max_prompt_tokens(0), PromptPace::kEfficientChunk);
  EXPECT_EQ(learnt_pace(1).max_prompt_tokens(0), 1000);  // as the target allows
}

TEST(PromptPace, AStepHoldsNoMoreThanItMay) {
  EXPECT_EQ(learnt_pace(10).max_prompt_tokens(100), 2048);
  EXPECT_EQ(learnt_pace(0.25, 64).max_prompt_tokens(0), 64);
}

TEST(PromptPace, TimeBeyondThatOfTheTokensIsLogProbabilities) {
  PromptPace pace = learnt_pace(1);
  pace.learn(100, 50, 0.6);  // 10 ms for each of the 50, with a weight of 0.3
  EXPECT_DOUBLE_EQ(pace.token_s(), 0.001);
  EXPECT_EQ(pace.logprobs_cost(), 4);
  EXPECT_DOUBLE_EQ(pace.expected_s(100, 50), 0.1 + 50 * 0.003);
}

TEST(PromptPace, ALogProbabilityCountsAsABoundedNumberOfTokens) {
  PromptPace pace = learnt_pace(1);
  pace.learn(1, 1, 1e6);
  EXPECT_EQ(pace.logprobs_cost(), 1001);
}

TEST(PromptPace, NewerStepsChangeTheMean) {
  PromptPace pace = learnt_pace(1);
  pace.learn(100, 0, 0.2);
  EXPECT_DOUBLE_EQ(pace.token_s(), 0.0013);
  // Faster than the mean, though with log-probabilities.
  pace.learn(100, 50, 0.03);
  EXPECT_DOUBLE_EQ(pace.token_s(), 0.0013 + 0.3 * (0.0003 - 0.0013));
  EXPECT_EQ(pace.logprobs_cost(), 1);
}

}  // namespace
}  // namespace quire
