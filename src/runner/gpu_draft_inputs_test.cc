// How much room a GPU's drafter has.
#include "runner/gpu_draft_inputs.h"

#include <gtest/gtest.h>

#include "runner/gpu_sizes.h"

namespace quire {
namespace {

RunnerOptions options_of(int64_t max_num_seqs, int64_t max_draft_tokens, int64_t max_drafts) {
  RunnerOptions options;
  options.model.config.architecture = "Qwen3ForCausalLM";
  options.model.config.hidden_act = "silu";
  options.model.config.vocab_size = 1000;
  options.model.config.hidden_size = 64;
  options.model.config.intermediate_size = 96;
  options.model.config.num_hidden_layers = 2;
  options.model.config.num_attention_heads = 4;
  options.model.config.num_key_value_heads = 2;
  options.model.config.head_dim = 16;
  options.model.config.layer_sliding_window = {0, 0};
  options.model.max_model_len = 4096;
  options.model.device.type = DeviceType::kCuda;
  options.max_tokens = 2048;
  options.max_num_seqs = max_num_seqs;
  options.max_logits_rows = max_num_seqs + max_drafts;
  options.max_draft_tokens = max_draft_tokens;
  options.max_drafts = max_drafts;
  options.draft.emplace().model = options.model;
  return options;
}

TEST(GpuDraftInputs, IdsOfAPassBeginAtWholeWords) {
  EXPECT_EQ(draft_ids_stride(1), 4);
  EXPECT_EQ(draft_ids_stride(4), 4);
  EXPECT_EQ(draft_ids_stride(5), 8);
}

TEST(GpuDraftInputs, HaveRoomForAsManySequencesAsMayHaveDrafts) {
  EXPECT_EQ(max_drafting(options_of(40, 4, 160)), 40);
  EXPECT_EQ(max_drafting(options_of(1000, 4, 256)), 256);
  EXPECT_EQ(num_draft_ids(options_of(1000, 4, 256)), 4 * 256);
  EXPECT_EQ(num_draft_ids(options_of(3, 8, 24)), 8 * 4);
  RunnerOptions none = options_of(1000, 4, 256);
  none.draft.reset();
  EXPECT_EQ(num_draft_ids(none), 0);
}

TEST(GpuDraftInputs, TakeMoreForMorePasses) {
  const GpuDraftSizes few = gpu_draft_sizes(planned_kernels(), options_of(40, 2, 80));
  const GpuDraftSizes many = gpu_draft_sizes(planned_kernels(), options_of(40, 8, 80));
  EXPECT_EQ(few.max_passes, 2);
  EXPECT_EQ(many.max_passes, 8);
  EXPECT_EQ(many.max_drafting, 40);
  EXPECT_EQ(many.largest_step.max_decode_queries, 9);
  EXPECT_EQ(many.largest_step.num_logits, 40);
  EXPECT_FALSE(many.largest_step.adjusts_logits);
  EXPECT_GT(many.inputs, few.inputs);
  EXPECT_GT(many.total(), few.total());
}

}  // namespace
}  // namespace quire
