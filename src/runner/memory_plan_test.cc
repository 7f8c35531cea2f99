#include "runner/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/error.h"

namespace quire {
namespace {

using testing::HasSubstr;

// Qwen3-0.6B's sizes.
PlanRequest qwen3_600m() {
  PlanRequest request;
  ModelConfig& config = request.model.config;
  config.architecture = "Qwen3ForCausalLM";
  config.model_type = "qwen3";
  config.vocab_size = 151936;
  config.hidden_size = 1024;
  config.intermediate_size = 3072;
  config.num_hidden_layers = 28;
  config.num_attention_heads = 16;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.max_position_embeddings = 40960;
  config.tie_word_embeddings = true;
  config.layer_sliding_window.assign(28, 0);
  request.model.dtype = DType::kBFloat16;
  request.model.max_model_len = 40960;
  request.kv_cache_dtype = DType::kBFloat16;
  request.max_num_batched_tokens = 16384;
  request.max_num_seqs = 512;
  request.available_bytes = int64_t{24} << 30;
  return request;
}

std::string error_of(const PlanRequest& request) {
  try {
    make_memory_plan(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(MemoryPlan, TakesHalfOfFreeMemoryForTheCache) {
  const MemoryPlan plan = make_memory_plan(qwen3_600m());
  // 28 layers x 2 x 8 heads x 128 x 2 bytes = 114,688 bytes a token.
  EXPECT_EQ(plan.bytes_per_block, 114688 * 16);
  EXPECT_EQ(plan.num_blocks, (int64_t{12} << 30) / plan.bytes_per_block);
  EXPECT_EQ(plan.max_full_length_seqs, plan.num_blocks / 2560);
}

TEST(MemoryPlan, TakesTheSameForAnyNumberOfRanks) {
  PlanRequest request = qwen3_600m();
  request.model.size = 2;
  EXPECT_EQ(make_memory_plan(request).bytes_per_block, 114688 * 16);
  request.model.size = 16;  // KV heads are replicated
  EXPECT_EQ(make_memory_plan(request).bytes_per_block, 2 * 114688 * 16);
}

TEST(MemoryPlan, TakesNoMoreThanAllSequencesCanUse) {
  PlanRequest request = qwen3_600m();
  request.model.max_model_len = 64;
  request.max_num_seqs = 2;
  EXPECT_EQ(make_memory_plan(request).num_blocks, 8);
}

TEST(MemoryPlan, SaysWhatToChangeWhereNothingFits) {
  PlanRequest request = qwen3_600m();
  request.available_bytes = int64_t{6} << 30;
  EXPECT_THAT(error_of(request), HasSubstr("One sequence of 40960 tokens needs 4.38 GiB"));
  EXPECT_THAT(error_of(request), HasSubstr("Set --max-model-len to"));
  request.kv_cache_memory_bytes = int64_t{1} << 30;
  EXPECT_THAT(error_of(request), HasSubstr("raise --kv-cache-memory-bytes"));
  request.available_bytes = 1 << 30;
  EXPECT_THAT(error_of(request),
              HasSubstr("The weights of this model alone take at least 1.11 GiB"));
  request = qwen3_600m();
  request.num_blocks_override = 10;
  EXPECT_THAT(error_of(request), HasSubstr("Set --max-model-len to 160 or less"));
  request.num_blocks_override = 1 << 20;
  EXPECT_THAT(error_of(request), HasSubstr("Lower --kv-cache-memory-bytes or"));
}

TEST(MemoryPlan, RefusesSizesThatOverflow) {
  PlanRequest request = qwen3_600m();
  ModelConfig& config = request.model.config;
  config.hidden_size = 1 << 20;
  config.num_hidden_layers = 4096;
  config.num_attention_heads = 65536;
  config.num_key_value_heads = 1;
  config.head_dim = 4096;
  config.vocab_size = 1 << 24;
  config.layer_sliding_window.assign(4096, 0);
  request.model.max_model_len = 16;
  EXPECT_THAT(error_of(request), HasSubstr("The weights of this model alone take at least"));
}

TEST(MemoryPlan, BoundsAStepByWhatAllSequencesHold) {
  PlanRequest request = qwen3_600m();
  EXPECT_EQ(max_step_tokens(request), 16384);
  request.model.max_model_len = 10;
  request.max_num_seqs = 3;
  EXPECT_EQ(max_step_tokens(request), 30);
  EXPECT_EQ(max_logits_rows(request), 3);
}

}  // namespace
}  // namespace quire
