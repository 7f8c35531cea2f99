// The public API on a tiny checkpoint: what is refused, aborted, cancelled and streamed.
#include "quire/llm_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/test_models.h"
#include "quire/async_llm.h"
#include "quire/benchmark.h"
#include "quire/llm.h"
#include "quire/plan.h"

namespace quire {
namespace {

using testing::HasSubstr;

EngineConfig tiny() {
  EngineConfig config;
  config.model = (engine_test::golden_models() / "qwen3-tied").string();
  config.skip_tokenizer_init = true;
  config.threads = 1;
  config.max_model_len = 128;
  return config;
}

SamplingParams greedy(int64_t max_tokens) {
  SamplingParams params;
  params.temperature = 0;
  params.ignore_eos = true;
  params.max_tokens = max_tokens;
  return params;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(LLMEngine, RefusesWhatItCannotServeAndGoesOn) {
  LLMEngine engine(tiny());
  const std::vector<int32_t> prompt{1, 2, 3};
  engine.add_request("good", prompt, greedy(4));
  const auto refused = [&](const Prompt& bad, const SamplingParams& params) {
    return error_of([&] { engine.add_request("bad", bad, params); });
  };
  EXPECT_THAT(refused(std::vector<int32_t>{}, greedy(1)), HasSubstr("The prompt is empty"));
  EXPECT_THAT(refused(std::vector<int32_t>{1, -1}, greedy(1)),
              HasSubstr("Prompt token 1 has id -1"));
  EXPECT_THAT(refused(std::vector<int32_t>{100000}, greedy(1)), HasSubstr("has id 100000"));
  EXPECT_THAT(refused(std::vector<int32_t>(128, 1), greedy(1)), HasSubstr("has 128 tokens"));
  EXPECT_THAT(refused("text", greedy(1)), HasSubstr("tokenizer was not loaded"));
  SamplingParams params = greedy(1);
  params.temperature = -1;
  EXPECT_THAT(refused(prompt, params), HasSubstr("temperature"));
  params = greedy(1);
  params.stop_token_ids = {100000};
  EXPECT_THAT(refused(prompt, params), HasSubstr("stop_token_ids has token id 100000"));
  params = greedy(1);
  params.logit_bias = {{100000, 1.0f}};
  EXPECT_THAT(refused(prompt, params), HasSubstr("logit_bias has token id 100000"));
  params = greedy(1);
  params.stop = {"x"};
  EXPECT_THAT(refused(prompt, params), HasSubstr("stop strings need a tokenizer"));
  EXPECT_THAT(error_of([&] { engine.add_request("good", prompt, greedy(1)); }),
              HasSubstr("in use"));

  std::vector<RequestOutput> last;
  while (!engine.is_finished()) {
    for (RequestOutput& output : engine.step()) last = {std::move(output)};
  }
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].outputs[0].token_ids.size(), 4u);
}

TEST(LLMEngine, GivesWhatTheOutputKindAsksFor) {
  const auto collect = [](OutputKind kind) {
    LLMEngine engine(tiny());
    engine.add_request("r", std::vector<int32_t>{5, 6, 7}, greedy(6), {.output_kind = kind});
    std::vector<std::vector<int32_t>> seen;
    while (!engine.is_finished()) {
      for (const RequestOutput& output : engine.step()) seen.push_back(output.outputs[0].token_ids);
    }
    return seen;
  };
  const auto cumulative = collect(OutputKind::kCumulative);
  const auto delta = collect(OutputKind::kDelta);
  const auto final_only = collect(OutputKind::kFinalOnly);
  ASSERT_EQ(cumulative.size(), 6u);
  ASSERT_EQ(delta.size(), 6u);
  ASSERT_EQ(final_only.size(), 1u);
  EXPECT_EQ(cumulative.back(), final_only[0]);
  std::vector<int32_t> joined;
  for (const auto& piece : delta) joined.insert(joined.end(), piece.begin(), piece.end());
  EXPECT_EQ(joined, final_only[0]);
}

TEST(LLMEngine, AbortsInEveryState) {
  LLMEngine engine(tiny());
  for (int steps_before = 0; steps_before < 5; ++steps_before) {
    engine.add_request("r", std::vector<int32_t>{5, 6, 7}, greedy(50));
    engine.add_request("other", std::vector<int32_t>{9}, greedy(8));
    for (int i = 0; i < steps_before; ++i) engine.step();
    engine.abort("r");
    engine.abort("unknown");
    bool aborted = false;
    bool other_finished = false;
    while (!engine.is_finished()) {
      for (const RequestOutput& output : engine.step()) {
        if (output.request_id == "r" && output.finished) {
          aborted = output.outputs[0].finish_reason == FinishReason::kAbort;
        }
        if (output.request_id == "other" && output.finished) {
          other_finished = output.outputs[0].token_ids.size() == 8;
        }
      }
    }
    EXPECT_TRUE(aborted);
    EXPECT_TRUE(other_finished);
  }
  EXPECT_EQ(engine.stats().kv_cache_usage, 0.0);
}

TEST(LLMEngine, CallsLogitsProcessors) {
  LLM llm(tiny());
  SamplingParams params = greedy(5);
  params.logits_processors.push_back([](std::span<const int32_t> ids, std::span<float> logits) {
    for (float& logit : logits) logit = -100.0f;
    logits[ids.size() % 7] = 0.0f;
  });
  const auto outputs = llm.generate({std::vector<int32_t>{1, 2}}, params);
  EXPECT_EQ(outputs[0].outputs[0].token_ids, (std::vector<int32_t>{2, 3, 4, 5, 6}));
}

// A stop token ends a request while its next step is in flight, and generate() uses ids again.
// The second token of a request on has no logits.
SamplingParams without_logits_after_one_token() {
  SamplingParams params = greedy(8);
  params.logits_processors.push_back([](std::span<const int32_t> ids, std::span<float> logits) {
    if (ids.size() > 3) std::ranges::fill(logits, std::numeric_limits<float>::quiet_NaN());
  });
  return params;
}

TEST(LLMEngine, LogitsThatAreNoNumbersEndTheirRequestWithAnError) {
  for (const bool async_scheduling : {true, false}) {
    EngineConfig config = tiny();
    config.async_scheduling = async_scheduling;
    LLMEngine engine(std::move(config));
    const std::vector<int32_t> prompt{1, 2, 3};
    SamplingParams bad = without_logits_after_one_token();
    bad.n = 2;
    bad.logprobs = 1;
    engine.add_request("bad", prompt, bad, {.output_kind = OutputKind::kFinalOnly});
    engine.add_request("good", prompt, greedy(4), {.output_kind = OutputKind::kFinalOnly});
    std::map<std::string, RequestOutput> outputs;
    while (!engine.is_finished()) {
      for (RequestOutput& output : engine.step()) outputs[output.request_id] = output;
    }
    EXPECT_THAT(outputs["bad"].error, HasSubstr("logits are not finite"));
    for (const CompletionOutput& completion : outputs["bad"].outputs) {
      EXPECT_EQ(completion.finish_reason, FinishReason::kAbort);
      EXPECT_EQ(completion.token_ids.size(), 1u);
    }
    EXPECT_EQ(outputs["good"].error, "");
    EXPECT_EQ(outputs["good"].outputs[0].token_ids.size(), 4u);
    EXPECT_EQ(engine.stats().num_running, 0);
    EXPECT_EQ(engine.stats().kv_cache_usage, 0);
  }
}

TEST(AsyncLLM, AStreamThatFailsSaysSoInItsLastOutput) {
  AsyncLLM llm(tiny());
  RequestStream stream =
      llm.generate(std::vector<int32_t>{1, 2, 3}, without_logits_after_one_token());
  std::string error;
  while (const auto output = stream.next()) error = output->error;
  EXPECT_THAT(error, HasSubstr("logits are not finite"));
}

TEST(LLMEngine, LogitsProcessorsSeeTheirOwnRequestOnly) {
  LLM llm(tiny());
  std::atomic<int> num_calls{0};
  std::atomic<int> num_strangers{0};
  for (int32_t first = 10; first < 30; ++first) {
    SamplingParams params = greedy(5);
    params.stop_token_ids = {3};
    params.logits_processors.push_back(
        [&, first](std::span<const int32_t> ids, std::span<float> logits) {
          ++num_calls;
          if (ids[0] != first || ids[1] != first + 1) ++num_strangers;
          logits[3] = 1000.0f;
        });
    const auto outputs = llm.generate({std::vector<int32_t>{first, first + 1}}, params);
    EXPECT_EQ(outputs[0].outputs[0].token_ids, (std::vector<int32_t>{3}));
  }
  EXPECT_GE(num_calls, 20);
  EXPECT_EQ(num_strangers, 0);
}

TEST(LLMEngine, HonoursMinTokensAndStopTokens) {
  LLM llm(tiny());
  SamplingParams params = greedy(10);
  const auto free_run = llm.generate({std::vector<int32_t>{1, 2}}, params)[0].outputs[0].token_ids;
  params.stop_token_ids = {free_run[2]};
  const auto stopped = llm.generate({std::vector<int32_t>{1, 2}}, params)[0].outputs[0];
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.token_ids.back(), free_run[2]);
  EXPECT_EQ(stopped.stop_reason, std::to_string(free_run[2]));
  params.min_tokens = 8;
  EXPECT_GE(llm.generate({std::vector<int32_t>{1, 2}}, params)[0].outputs[0].token_ids.size(), 8u);
}

TEST(LLMEngine, EndsAtMaxModelLen) {
  LLM llm(tiny());
  SamplingParams params = greedy(1);
  params.max_tokens = std::nullopt;
  const auto output = llm.generate({std::vector<int32_t>(100, 3)}, params)[0].outputs[0];
  EXPECT_EQ(output.token_ids.size(), 28u);
  EXPECT_EQ(output.finish_reason, FinishReason::kLength);
}

TEST(LLM, NamesThePromptThatItRefuses) {
  LLM llm(tiny());
  const std::vector<Prompt> prompts{std::vector<int32_t>{1}, std::vector<int32_t>{}};
  EXPECT_THAT(error_of([&] { llm.generate(prompts, greedy(2)); }),
              HasSubstr("Prompt 1: The prompt is empty"));
  EXPECT_EQ(llm.generate({prompts[0]}, greedy(2)).size(), 1u);
  EXPECT_THAT(error_of([&] { llm.generate(prompts, std::vector<SamplingParams>(3)); }),
              HasSubstr("2 prompts and 3 SamplingParams"));
}

TEST(AsyncLLM, ServesManyThreadsAndCancels) {
  AsyncLLM llm(tiny());
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  const auto expected =
      LLM(tiny()).generate({std::vector<int32_t>{4, 2}}, greedy(30))[0].outputs[0].token_ids;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      RequestStream stream = llm.generate(std::vector<int32_t>{4, 2}, greedy(30));
      std::vector<int32_t> ids;
      while (auto output = stream.next()) {
        const auto& piece = output->outputs[0].token_ids;
        ids.insert(ids.end(), piece.begin(), piece.end());
        if (i % 2 == 1) {
          stream.cancel();
          while (stream.next()) {
          }
          break;
        }
      }
      if (i % 2 == 1 || ids == expected) ++right;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 8);
  EXPECT_THAT(error_of([&] { llm.generate(std::vector<int32_t>{}, greedy(1)); }),
              HasSubstr("empty"));
}

TEST(AsyncLLM, TellsWhenThereIsSomethingToFetch) {
  const auto expected =
      LLM(tiny()).generate({std::vector<int32_t>{4, 2}}, greedy(30))[0].outputs[0].token_ids;
  std::mutex mutex;
  std::condition_variable called;
  bool ready = false;
  AsyncLLM llm(tiny());  // ends before what its thread's calls use
  RequestStream stream = llm.generate(std::vector<int32_t>{4, 2}, greedy(30),
                                      {.output_kind = OutputKind::kDelta}, [&] {
                                        const std::lock_guard lock(mutex);
                                        ready = true;
                                        called.notify_one();
                                      });
  std::vector<int32_t> ids;
  for (bool finished = false; !finished;) {
    {
      std::unique_lock lock(mutex);
      called.wait(lock, [&] { return ready; });
      ready = false;
    }
    while (auto output = stream.try_next()) {
      if (ids.empty()) {
        EXPECT_EQ(output->prompt_token_ids, (std::vector<int32_t>{4, 2}));
      }
      const auto& piece = output->outputs[0].token_ids;
      ids.insert(ids.end(), piece.begin(), piece.end());
      finished = output->finished;
    }
  }
  EXPECT_EQ(ids, expected);
  EXPECT_FALSE(stream.try_next());
}

TEST(AsyncLLM, ShutsDownUnderRunningStreams) {
  std::optional<RequestStream> stream;
  {
    AsyncLLM llm(tiny());
    stream.emplace(llm.generate(std::vector<int32_t>{1}, greedy(100)));
    (void)stream->next();
  }
  std::string error;
  try {
    while (stream->next()) {
    }
  } catch (const Error& caught) {
    error = caught.what();
  }
  EXPECT_TRUE(error.empty() || error.find("shut down") != std::string::npos);
  stream->cancel();
}

TEST(LLM, LeavesNoRequestBehindAStepCallbackThatThrows) {
  LLM llm(tiny());
  llm.set_step_callback([](size_t, size_t, const EngineStats&) -> bool { throw Error("enough"); });
  const std::vector<Prompt> prompts(3, std::vector<int32_t>{1, 2, 3});
  EXPECT_EQ(error_of([&] { llm.generate(prompts, greedy(50)); }), "enough");
  EXPECT_TRUE(llm.engine().is_finished());
  llm.set_step_callback({});
  const auto outputs = llm.generate(prompts, greedy(4));
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(outputs[2].outputs.at(0).token_ids.size(), 4u);
}

TEST(Executor, SaysWhenARanksThreadCannotBeStarted) {
  // No thread gets a stack of more than the address space.
  pthread_attr_t usual;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  pthread_attr_t huge = usual;
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const std::string message = error_of([] { const LLMEngine engine(tiny()); });
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  pthread_attr_destroy(&usual);
  EXPECT_THAT(message, HasSubstr("The thread of rank 0 cannot be started"));
}

TEST(Benchmark, MeasuresTheMachineWithoutPlanningMemory) {
  // With a KV cache that could not be had again: an engine that holds it may be measured.
  EngineConfig config = tiny();
  config.kv_cache_memory_bytes = INT64_MAX;
  EXPECT_THAT(error_of([&] { plan(config); }), HasSubstr("is free"));
  const MachineLimits limits = measure_machine(config);
  EXPECT_GT(limits.read_gb_s, 0);
  EXPECT_GT(limits.peak_gflops, 0);
}

TEST(Benchmark, MeasuresTheInstructionsThatTheEngineUses) {
  ASSERT_EQ(setenv("QUIRE_CPU_ISA", "none", 1), 0);
  const std::string message = error_of([] { measure_machine(tiny()); });
  ASSERT_EQ(unsetenv("QUIRE_CPU_ISA"), 0);
  EXPECT_THAT(message, HasSubstr("QUIRE_CPU_ISA is \"none\""));
}

TEST(EngineConfig, RefusesSettingsOutOfRange) {
  const auto refused = [](const std::function<void(EngineConfig&)>& change) {
    EngineConfig config = tiny();
    change(config);
    return error_of([&] { plan(config); });
  };
  EXPECT_THAT(refused([](auto& c) { c.block_size = 24; }), HasSubstr("--block-size is 24"));
  EXPECT_THAT(refused([](auto& c) { c.target_step_s = -1; }),
              HasSubstr("--target-step-time is -1"));
  EXPECT_THAT(refused([](auto& c) { c.max_num_seqs = 0; }), HasSubstr("--max-num-seqs is 0"));
  EXPECT_THAT(refused([](auto& c) { c.max_model_len = 100000; }), HasSubstr("supports at most"));
  EXPECT_THAT(refused([](auto& c) { c.max_model_len = 1; }), HasSubstr("or more"));
  EXPECT_THAT(refused([](auto& c) { c.device = "tpu"; }), HasSubstr("--device is \"tpu\""));
  EXPECT_THAT(refused([](auto& c) { c.dtype = "int3"; }), HasSubstr("--dtype is \"int3\""));
  EXPECT_THAT(refused([](auto& c) {
                c.threads = 3;
                c.tensor_parallel_size = 3;
              }),
              HasSubstr("tensor_parallel_size"));
  EXPECT_THAT(refused([](auto& c) { c.num_gpu_blocks_override = 2; }),
              HasSubstr("Set --max-model-len to 32 or less"));
  EXPECT_THAT(refused([](auto& c) { c.num_gpu_blocks_override = int64_t{1} << 62; }),
              HasSubstr("expected at most"));
  EXPECT_THAT(refused([](auto& c) { c.kv_cache_memory_bytes = INT64_MAX; }), HasSubstr("is free"));
  EXPECT_THAT(refused([](auto& c) { c.kv_cache_memory_bytes = 1; }), HasSubstr("KV cache"));
  EXPECT_THAT(refused([](auto& c) {
                c.threads = 1;
                c.tensor_parallel_size = 2;
              }),
              HasSubstr("a thread for each rank"));
  EXPECT_THAT(refused([](auto& c) { c.model = "/nowhere"; }), HasSubstr("/nowhere"));
}

TEST(Plan, AddsUp) {
  const MemoryPlan result = plan(tiny());
  int64_t sum = 0;
  for (const PlannedBuffer& buffer : result.buffers) sum += buffer.bytes;
  EXPECT_EQ(sum, result.total_bytes);
  EXPECT_EQ(result.num_cache_tokens, result.num_blocks * 16);
  EXPECT_GE(result.max_full_length_seqs, 1);
  EXPECT_EQ(result.num_parameters, inspect(tiny().model).num_parameters);
}

}  // namespace
}  // namespace quire
