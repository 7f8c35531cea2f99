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
  EXPECT_EQ(max_step_tokens_of(config, true), 512 + 3);
  config.speculative_config.emplace().num_speculative_tokens = 5;
  EXPECT_EQ(max_stage_drafts_of(config), 15);
  EXPECT_EQ(max_step_tokens_of(config, false), 512 + 3 + 15);
  EXPECT_EQ(max_step_tokens_of(config, true), 512 + 3 + 50);
  config.max_num_seqs = 400;
  EXPECT_EQ(max_step_tokens_of(config, true), 512 + 100 + 256);
  config.max_num_batched_tokens = 16;
  EXPECT_EQ(max_step_tokens_of(config, false), 16);
}

}  // namespace
}  // namespace quire
