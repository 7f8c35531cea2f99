#include "speculative/draft_trial.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace quire::speculative_internal {
namespace {

constexpr size_t kMany = 256;
// Seconds of a step that brings two tokens of each sequence: a little more than two without drafts.
constexpr double kLosing = 0.022;

void run_plain(DraftTrial& trial, int steps, size_t num_sequences = kMany) {
  for (int i = 0; i < steps; ++i) {
    trial.learn(num_sequences, num_sequences, 0.010, false);
  }
}

// Steps that take `seconds` and bring two tokens of each sequence. Returns whether drafts may go
// on.
bool run_trial(DraftTrial& trial, double seconds, size_t num_sequences = kMany) {
  for (int i = 0; i < DraftTrial::kDraftedSteps; ++i) {
    EXPECT_TRUE(trial.may_draft(num_sequences));
    trial.learn(num_sequences, 2 * num_sequences, seconds, true);
  }
  return trial.may_draft(num_sequences);
}

TEST(DraftTrial, FewSequencesNeedNone) {
  DraftTrial trial;
  EXPECT_TRUE(trial.may_draft(1));
  EXPECT_TRUE(trial.may_draft(DraftTrial::kLeastSequences - 1));
  trial.learn(8, 8, 10.0, true);
  EXPECT_TRUE(trial.may_draft(8));
}

TEST(DraftTrial, StepsWithoutDraftsComeFirst) {
  DraftTrial trial;
  EXPECT_FALSE(trial.may_draft(kMany));
  run_plain(trial, DraftTrial::kPlainSteps - 1);
  EXPECT_FALSE(trial.may_draft(kMany));
  run_plain(trial, 1);
  EXPECT_TRUE(trial.may_draft(kMany));
  EXPECT_TRUE(trial.may_draft(kMany - 10)) << "about as many";
  EXPECT_FALSE(trial.may_draft(kMany / 2)) << "another number is tried by itself";
}

TEST(DraftTrial, DraftsThatGainGoOn) {
  DraftTrial trial;
  run_plain(trial, DraftTrial::kPlainSteps);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(run_trial(trial, 0.015));
}

TEST(DraftTrial, DraftsThatLosePauseTwiceAsLongEachTime) {
  DraftTrial trial;
  run_plain(trial, DraftTrial::kPlainSteps);
  int pause = DraftTrial::kFirstPause;
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(run_trial(trial, kLosing));
    run_plain(trial, pause - 1);
    EXPECT_FALSE(trial.may_draft(kMany));
    run_plain(trial, 1);
    EXPECT_TRUE(trial.may_draft(kMany));
    pause = std::min(2 * pause, DraftTrial::kLongestPause);
  }
  EXPECT_TRUE(run_trial(trial, 0.015));
  EXPECT_FALSE(run_trial(trial, kLosing));
  run_plain(trial, DraftTrial::kFirstPause);
  EXPECT_TRUE(trial.may_draft(kMany)) << "a gain makes the next pause a short one";
}

TEST(DraftTrial, DraftsThatClearlyLosePauseAfterTwoSteps) {
  DraftTrial trial;
  run_plain(trial, DraftTrial::kPlainSteps);
  trial.learn(kMany, 2 * kMany, 0.030, true);
  EXPECT_TRUE(trial.may_draft(kMany));
  trial.learn(kMany, 2 * kMany, 0.030, true);
  EXPECT_FALSE(trial.may_draft(kMany));
}

TEST(DraftTrial, StepsThatGetSlowerWithoutDraftsAreNoticed) {
  DraftTrial trial;
  run_plain(trial, DraftTrial::kPlainSteps);
  EXPECT_FALSE(run_trial(trial, kLosing));
  for (int i = 0; i < DraftTrial::kFirstPause; ++i) trial.learn(kMany, kMany, 0.014, false);
  EXPECT_TRUE(run_trial(trial, kLosing)) << "texts have grown, and with them both kinds of steps";
}

}  // namespace
}  // namespace quire::speculative_internal
