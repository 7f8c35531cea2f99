// The result of a request does not depend on its neighbours: its tokens and, bit for bit, its
// log-probabilities are the same by itself and in any random schedule.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/ceil_div.h"
#include "base/sanitized_test_util.h"
#include "base/temporary_folder_test_util.h"
#include "engine/random_requests.h"
#include "loader/gguf_test_util.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

void expect_independence(const std::string& model, const std::string& dtype, uint32_t seed,
                         const std::string& kv_cache_dtype = "auto",
                         const std::string& quantization = "none") {
  std::mt19937 random(seed);
  EngineConfig config = base_config(model);
  config.dtype = dtype;
  config.kv_cache_dtype = kv_cache_dtype;
  config.quantization = quantization;
  config.enable_prefix_caching = false;
  config.async_scheduling = false;
  const std::vector<RandomRequest> requests =
      random_requests(random, LLMEngine(config).vocab_size());
  std::vector<RequestOutput> expected;
  for (const RandomRequest& request : requests) {
    expected.push_back(run(config, {request}, {0})[0]);
  }

  RunTotals totals;
  constexpr int kTrials = kSanitized ? 3 : 6;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto draw = [&random](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    EngineConfig trial_config = config;
    trial_config.enable_prefix_caching = draw(0, 1) == 0;
    trial_config.async_scheduling = draw(0, 1) == 0;
    trial_config.max_num_batched_tokens = trial % 2 == 0 ? draw(3, 40) : 512;
    trial_config.max_num_seqs = draw(1, 40);
    trial_config.block_size = draw(0, 1) == 0 ? 16 : 48;
    trial_config.threads = draw(1, 4);
    trial_config.target_step_s = draw(0, 1) == 0 ? 0 : 1e-5;  // chunks of prompts cut by time
    const int64_t least = ceil_div(160, trial_config.block_size);
    trial_config.num_gpu_blocks_override = least + draw(0, 6);
    std::vector<int> arrival_steps;
    for (size_t i = 0; i < requests.size(); ++i) arrival_steps.push_back(draw(0, 30));
    const auto outputs = run(trial_config, requests, arrival_steps, &totals);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_equal(outputs[i], expected[i],
                   "trial " + std::to_string(trial) + ", request " + std::to_string(i));
    }
  }
  EXPECT_GT(totals.num_preemptions, 0) << "the schedules were meant to preempt";
}

TEST(EngineProperty, Float32ResultsDoNotDependOnTheSchedule) {
  for (uint32_t seed = 1; seed <= 3; ++seed) expect_independence("qwen3-tied", "float32", seed);
}

TEST(EngineProperty, BFloat16ResultsDoNotDependOnTheSchedule) {
  for (uint32_t seed = 4; seed <= 6; ++seed) expect_independence("qwen3-bf16", "bfloat16", seed);
}

TEST(EngineProperty, SlidingWindowResultsDoNotDependOnTheSchedule) {
  expect_independence("mistral-sliding", "float32", 7);
}

TEST(EngineProperty, ResultsOfNarrowCachesDoNotDependOnTheSchedule) {
  expect_independence("qwen3-bf16", "bfloat16", 9, "int8");
  expect_independence("qwen3-bf16", "bfloat16", 10, "fp8");
  expect_independence("mistral-sliding", "float32", 11, "int8");
}

TEST(EngineProperty, ResultsOfRoundedWeightsDoNotDependOnTheSchedule) {
  expect_independence("qwen3-bf16", "bfloat16", 12, "auto", "int8");
  expect_independence("qwen3-bf16", "bfloat16", 13, "auto", "int4");
  expect_independence("qwen3-bf16", "bfloat16", 14, "auto", "fp8");
  expect_independence("qwen3-tied", "float32", 15, "auto", "int4");
}

// Random Q4_0 blocks of one scale, 2^-7 (`shape` has whole blocks), or ones.
std::string gguf_data(const std::vector<uint64_t>& shape, std::mt19937& random) {
  std::string data;
  if (shape.size() == 1) {
    for (uint64_t i = 0; i < shape[0]; ++i) data += number_bytes(1.0f);
    return data;
  }
  constexpr uint64_t kBlock = 32;
  for (uint64_t block = 0; block < shape[0] * shape[1] / kBlock; ++block) {
    data += number_bytes<uint16_t>(0x2000);
    for (uint64_t i = 0; i < kBlock / 2; ++i) data += static_cast<char>(random());
  }
  return data;
}

// A tiny Qwen3 with tied embeddings.
std::string gguf_of_blocks() {
  constexpr uint32_t kF32 = 0, kQ4_0 = 2;
  std::mt19937 random(1);
  GgufWriter writer;
  writer.text("general.architecture", "qwen3").text("tokenizer.ggml.model", "none");
  writer.number("qwen3.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.number("qwen3.rope.freq_base", 10000.0f);
  for (const auto& [key, value] : {std::pair<const char*, uint32_t>{"vocab_size", 96},
                                   {"block_count", 2},
                                   {"context_length", 256},
                                   {"embedding_length", 64},
                                   {"feed_forward_length", 96},
                                   {"attention.head_count", 4},
                                   {"attention.head_count_kv", 2},
                                   {"attention.key_length", 16},
                                   {"attention.value_length", 16}}) {
    writer.integer(std::string("qwen3.") + key, value);
  }
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& shape) {
    writer.tensor(name + ".weight", shape.size() == 1 ? kF32 : kQ4_0, shape,
                  gguf_data(shape, random));
  };
  add("token_embd", {96, 64});
  add("output_norm", {64});
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    add(layer + "attn_norm", {64});
    add(layer + "attn_q", {64, 64});
    add(layer + "attn_k", {32, 64});
    add(layer + "attn_v", {32, 64});
    add(layer + "attn_q_norm", {16});
    add(layer + "attn_k_norm", {16});
    add(layer + "attn_output", {64, 64});
    add(layer + "ffn_norm", {64});
    add(layer + "ffn_gate", {96, 64});
    add(layer + "ffn_up", {96, 64});
    add(layer + "ffn_down", {64, 96});
  }
  return writer.str();
}

TEST(EngineProperty, ResultsOfBlocksOfGgufDoNotDependOnTheSchedule) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "m.gguf";
  std::ofstream(path, std::ios::binary) << gguf_of_blocks();
  expect_independence(path.string(), "auto", 16);  // activations int8
  expect_independence(path.string(), "float32", 17);
}

void expect_repeats_of_two_ranks(const std::string& kv_cache_dtype) {
  std::mt19937 random(8);
  EngineConfig config = base_config("qwen3-tied");
  config.kv_cache_dtype = kv_cache_dtype;
  config.tensor_parallel_size = 2;
  config.threads = 2;
  const std::vector<RandomRequest> requests =
      random_requests(random, LLMEngine(config).vocab_size());
  const std::vector<int> arrivals(requests.size(), 0);
  const auto expected = run(config, requests, arrivals);
  config.max_num_batched_tokens = 23;
  const auto outputs = run(config, requests, arrivals);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_equal(outputs[i], expected[i], "request " + std::to_string(i));
  }
}

TEST(EngineProperty, TwoRanksRepeatThemselves) {
  for (const char* kv_cache_dtype : {"auto", "int8", "fp8", "fp8_e5m2"}) {
    SCOPED_TRACE(kv_cache_dtype);
    expect_repeats_of_two_ranks(kv_cache_dtype);
  }
}

}  // namespace
}  // namespace quire
