#include "runner/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/cuda/kernels.h"
#include "quire/error.h"

namespace quire {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

TEST(MemoryPlan, HasADraftModelInTheSameBlocks) {
  const MemoryPlan without = make_memory_plan(qwen3_600m());
  PlanRequest request = qwen3_600m();
  request.draft = DraftModelOptions{request.model, DType::kBFloat16, "draft"};
  request.draft->model.config.num_hidden_layers = 7;
  request.draft->model.config.layer_sliding_window.assign(7, 0);
  const MemoryPlan with = make_memory_plan(request);
  EXPECT_EQ(with.bytes_per_block, without.bytes_per_block * 5 / 4);
  EXPECT_EQ(with.num_blocks, (int64_t{12} << 30) / with.bytes_per_block);
}

TEST(MemoryPlan, RefusesADraftModelThatDoesNotFit) {
  PlanRequest request = qwen3_600m();
  request.draft = DraftModelOptions{request.model, DType::kBFloat16, "draft"};
  request.draft->model.config.hidden_size = 1 << 16;
  EXPECT_THAT(error_of(request),
              AllOf(HasSubstr("--speculative-config: the draft model draft: The weights"),
                    HasSubstr("24.00 GiB of memory is free")));
  request.draft->model = request.model;
  request.available_bytes = int64_t{3} << 29;  // the model itself takes 1.2 GiB
  EXPECT_THAT(error_of(request), HasSubstr("this model and its draft model take"));
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

// The sizes that a GPU's kernels ask for are theirs to say; these are any.
ops::CudaKernels sizes_of_kernels() {
  ops::CudaKernels kernels = {};
  kernels.paged_attention_scratch_bytes = [](int64_t, int64_t, int64_t, int, int, int) {
    return int64_t{64} << 20;
  };
  kernels.sample_scratch_bytes = [](int64_t rows, int64_t) { return rows * 4096; };
  return kernels;
}

PlanRequest on_gpus(const ops::CudaKernels& kernels, int num_ranks) {
  PlanRequest request = qwen3_600m();
  request.model.device.type = DeviceType::kCuda;
  request.model.size = num_ranks;
  request.kernels = &kernels;
  request.gpu_memory_utilization = 0.9;
  request.overhead_bytes = int64_t{300} << 20;
  return request;
}

TEST(MemoryPlan, TakesAllThatIsLeftOfAGpuForTheCache) {
  const ops::CudaKernels kernels = sizes_of_kernels();
  for (const int num_ranks : {1, 2, 4}) {
    const MemoryPlan plan = make_memory_plan(on_gpus(kernels, num_ranks));
    EXPECT_EQ(plan.device, "cuda");
    EXPECT_LE(plan.total_bytes, plan.available_bytes);
    EXPECT_GT(plan.total_bytes, plan.available_bytes - plan.bytes_per_block);
    // 28 layers, keys and values, 8 heads of 128, 16 tokens, 2 bytes; an id for each token and
    // rank.
    EXPECT_EQ(plan.bytes_per_block, 28 * 2 * 8 * 128 * 16 * 2 + num_ranks * 16 * 4);
    // Each rank reserves its part.
    EXPECT_EQ(plan.total_bytes % num_ranks, 0);
    const auto overhead = std::ranges::find(plan.buffers, "CUDA", &PlannedBuffer::name);
    ASSERT_NE(overhead, plan.buffers.end());
    EXPECT_EQ(overhead->bytes, num_ranks * (int64_t{300} << 20));
  }
}

TEST(MemoryPlan, TheStageWithTheLeastRoomDecidesOnTheBlocksOfGpus) {
  const ops::CudaKernels kernels = sizes_of_kernels();
  PlanRequest request = on_gpus(kernels, 1);
  request.num_stages = 2;
  request.model.stage_layers = {14, 14};
  const MemoryPlan even = make_memory_plan(request);
  request.model.stage_layers = {21, 7};
  const MemoryPlan uneven = make_memory_plan(request);
  ASSERT_EQ(uneven.stages.size(), 2u);
  EXPECT_EQ(uneven.stages[0].num_layers, 21);
  EXPECT_EQ(uneven.stages[1].first_layer, 21);
  EXPECT_LT(uneven.num_blocks, even.num_blocks);
  for (const MemoryPlan& plan : {even, uneven}) {
    int64_t kv_bytes = 0;
    for (const PlannedStage& stage : plan.stages) {
      EXPECT_LT(stage.weight_bytes + stage.kv_bytes, plan.available_bytes / 2);
      EXPECT_EQ(stage.kv_bytes % plan.num_blocks, 0);
      kv_bytes += stage.kv_bytes;
    }
    EXPECT_EQ(kv_bytes, plan.num_blocks * plan.bytes_per_block);
  }
  request.num_blocks_override = uneven.num_blocks + 1;
  EXPECT_THAT(error_of(request), HasSubstr("The stage of layers 0 to 20 does not fit: "));
  EXPECT_THAT(error_of(request), HasSubstr("--pipeline-layers"));
  // In all there is enough, but not for the first stage.
  request.num_blocks_override.reset();
  request.max_num_batched_tokens = 512;
  request.max_num_seqs = 16;
  request.model.stage_layers = {27, 1};
  request.available_bytes = int64_t{8} << 30;
  EXPECT_THAT(error_of(request),
              HasSubstr("The stage of layers 0 to 26: One sequence of 40960 tokens needs"));
  EXPECT_THAT(error_of(request), HasSubstr("free on the GPU)"));
  EXPECT_THAT(error_of(request), HasSubstr("--pipeline-layers"));
  request.model.stage_layers = {14, 14};
  EXPECT_EQ(error_of(request), "no error");
}

TEST(MemoryPlan, SaysWhatToChangeWhereAGpuIsTooSmall) {
  const ops::CudaKernels kernels = sizes_of_kernels();
  PlanRequest request = on_gpus(kernels, 1);
  request.available_bytes = int64_t{6} << 30;
  EXPECT_THAT(error_of(request), HasSubstr("6.00 GiB may be taken (--gpu-memory-utilization 0.9 of "
                                           "what is free on the GPU)"));
  EXPECT_THAT(error_of(request), HasSubstr("--kv-cache-dtype fp8"));
  EXPECT_THAT(error_of(request), Not(HasSubstr("set --kv-cache-memory-bytes yourself")));
  request.available_bytes = int64_t{1} << 30;
  EXPECT_THAT(error_of(request), HasSubstr("raise --gpu-memory-utilization"));
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
