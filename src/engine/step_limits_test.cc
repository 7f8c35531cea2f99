#include "engine/step_limits.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(StepLimits, StagesHaveRoomForPromptsDecodesAndDrafts) {
  EngineConfig config;
  config.max_num_batched_tokens = 4096;
  config.max_num_seqs = 10;
  EXPECT_EQ(max_step_tokens_of(config, false), 4096) << "one stage has all";
  config.pipeline_parallel_size = 4;
  // A chunk of an eighth, a fourth of the sequences, and text that has no choice.
  EXPECT_EQ(max_step_tokens_of(config, false), 512 + 3 + 256);
  EXPECT_EQ(max_step_tokens_of(config, true), 512 + 3 + 64);
  config.speculative_config.emplace().num_speculative_tokens = 5;
  EXPECT_EQ(max_stage_drafts_of(config), 15);
  EXPECT_EQ(max_step_tokens_of(config, false), 512 + 3 + 15);
  EXPECT_EQ(max_step_tokens_of(config, true), 512 + 3 + 50);
  config.max_num_seqs = 400;
  EXPECT_EQ(max_step_tokens_of(config, true), 512 + 100 + 256);
  config.max_num_batched_tokens = 16;
  EXPECT_EQ(max_step_tokens_of(config, false), 16);
}

// Where answers have no constraints, drafts have any ids, or attention has no room, none are
// forced.
TEST(StepLimits, TextWithoutAChoiceIsDraftedWhereItIsKnown) {
  EngineConfig config;
  EXPECT_EQ(max_forced_drafts_of(config, false), 16);
  EXPECT_EQ(max_forced_drafts_of(config, true), 7);
  EXPECT_EQ(max_gpu_drafts_of(config), 64);
  config.max_num_seqs = 1025;
  EXPECT_EQ(max_forced_drafts_of(config, true), 0);
  EXPECT_EQ(max_gpu_drafts_of(config), 0);
  config.max_num_seqs = 1;
  EXPECT_EQ(max_gpu_drafts_of(config), 7);
  config.speculative_config.emplace().num_speculative_tokens = 3;
  EXPECT_EQ(max_forced_drafts_of(config, true), 3);
  EXPECT_EQ(max_forced_drafts_of(config, false), 16);
  config.speculative_config->synthetic_acceptance_length = 2;
  EXPECT_EQ(max_forced_drafts_of(config, false), 0);
  config.speculative_config.reset();
  config.skip_tokenizer_init = true;
  EXPECT_EQ(max_forced_drafts_of(config, false), 0);
}

}  // namespace
}  // namespace quire
