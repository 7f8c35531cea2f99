// Adapters that an engine serves: a request's tokens are those of its adapter, whatever else the
// engine does with it and with others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/ceil_div.h"
#include "base/sanitized_test_util.h"
#include "base/temporary_folder_test_util.h"
#include "engine/float8_test_models.h"
#include "engine/lora_test_util.h"
#include "engine/random_requests.h"
#include "engine/speculative_test_util.h"
#include "quire/async_llm.h"
#include "quire/llm.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of_lora(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

SamplingParams greedy_tokens(int64_t count) {
  SamplingParams params;
  params.temperature = 0;
  params.ignore_eos = true;
  params.max_tokens = count;
  return params;
}

class LoraServing : public testing::Test {
 protected:
  static constexpr const char* kModel = "qwen3-tied";

  // A folder with an adapter.
  std::string adapter(const std::string& name, const RandomAdapter& random,
                      const std::string& model = kModel) {
    write_adapter(root_.path() / name, model, random);
    return (root_.path() / name).string();
  }

  // An engine's config with adapters "a", "b", ... of ranks from 1 on.
  EngineConfig config_with(int num_adapters, const std::string& model = kModel) {
    EngineConfig config = base_config(model);
    config.dtype = "float32";
    config.lora.enabled = true;
    config.lora.max_lora_rank = std::max(16, 1 + 3 * (num_adapters - 1));
    config.lora.max_loras = num_adapters;
    for (int i = 0; i < num_adapters; ++i) {
      RandomAdapter random = {.seed = static_cast<uint64_t>(i), .rank = 1 + 3 * i};
      if (i % 3 == 1) random.modules = {"q_proj", "down_proj"};
      if (i % 3 == 2) random.modules.emplace_back("lm_head");
      if (i >= 3) random.copies = {"down_proj", "v_proj", i == 3 ? "lm_head" : "embed_tokens"};
      if (i == 4) random.norms = {"norm", "q_norm", "k_norm"};
      const std::string name(1, static_cast<char>('a' + i));
      config.lora.modules.push_back({name, adapter(name, random, model)});
    }
    return config;
  }

  static std::vector<int32_t> prompt(int32_t first = 1) {
    std::vector<int32_t> tokens(40);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = first + static_cast<int32_t>(i * 7 % 50);
    }
    return tokens;
  }

  static std::vector<int32_t> tokens_of(LLM& llm, const std::string& lora) {
    return llm.generate({prompt()}, std::vector{greedy_tokens(12)}, {lora})[0].outputs[0].token_ids;
  }

  TemporaryFolder root_;
};

TEST_F(LoraServing, ResultsDoNotDependOnTheSchedule) {
  for (uint32_t seed = kSanitized ? 3 : 1; seed <= 3; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&random](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const std::string model = seed == 3 ? "qwen3-bf16" : kModel;
    EngineConfig config = config_with(8, model);
    if (seed == 3) config.dtype = "bfloat16";
    config.enable_prefix_caching = false;
    config.async_scheduling = false;
    std::vector<RandomRequest> requests = random_requests(random, LLMEngine(config).vocab_size());
    for (RandomRequest& request : requests) {
      const int which = draw(0, 8);
      if (which > 0) request.lora = std::string(1, static_cast<char>('a' + which - 1));
    }
    std::vector<RequestOutput> expected;
    for (const RandomRequest& request : requests) {
      expected.push_back(run(config, {request}, {0})[0]);
    }
    for (int trial = 0; trial < 6; ++trial) {
      EngineConfig changed = config;
      changed.enable_prefix_caching = draw(0, 1) == 0;
      changed.async_scheduling = draw(0, 1) == 0;
      changed.max_num_batched_tokens = trial % 2 == 0 ? draw(3, 40) : 512;
      changed.max_num_seqs = draw(1, 40);
      changed.threads = draw(1, 4);
      changed.num_gpu_blocks_override = ceil_div(160, 16) + draw(0, 6);
      changed.lora.max_loras = draw(1, 8);
      changed.lora.max_cpu_loras = changed.lora.max_loras;
      if (trial == 3) {
        changed.speculative_config.emplace().method = "draft_model";
        changed.speculative_config->model = config.model;
        changed.speculative_config->adaptive = false;
      }
      if (trial == 4) {
        changed.speculative_config.emplace().method = "ngram";
        changed.speculative_config->prompt_lookup_min = 1;
      }
      if (trial == 5 && model == kModel) changed.speculative_config = eagle("shared", 3);
      std::vector<int> arrival_steps;
      for (size_t i = 0; i < requests.size(); ++i) arrival_steps.push_back(draw(0, 30));
      const auto outputs = run(changed, requests, arrival_steps);
      for (size_t i = 0; i < requests.size(); ++i) {
        expect_equal(outputs[i], expected[i],
                     "seed " + std::to_string(seed) + ", trial " + std::to_string(trial) +
                         ", request " + std::to_string(i) + " with \"" + requests[i].lora + "\"");
      }
    }
  }
}

TEST_F(LoraServing, RanksAndStagesRepeatThemselves) {
  for (const bool in_stages : {false, true}) {
    std::mt19937 random(8);
    EngineConfig config = config_with(3);
    (in_stages ? config.pipeline_parallel_size : config.tensor_parallel_size) = 2;
    config.threads = 2;
    std::vector<RandomRequest> requests = random_requests(random, LLMEngine(config).vocab_size());
    for (size_t i = 0; i < requests.size(); ++i) {
      if (i % 4 > 0) requests[i].lora = std::string(1, static_cast<char>('a' + i % 4 - 1));
    }
    const std::vector<int> arrivals(requests.size(), 0);
    EngineConfig alone = config;
    if (in_stages) alone.pipeline_parallel_size = 1;
    const auto expected = run(alone, requests, arrivals);
    config.max_num_batched_tokens = 23;
    const auto outputs = run(config, requests, arrivals);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_equal(outputs[i], expected[i], "request " + std::to_string(i));
    }
  }
}

TEST_F(LoraServing, AZeroAdapterIsTheBase) {
  for (const char* quantization : {"none", "int8", "int4"}) {
    std::mt19937 random(3);
    EngineConfig config = base_config(kModel);
    config.quantization = quantization;
    std::vector<RandomRequest> requests = random_requests(random, LLMEngine(config).vocab_size());
    const std::vector<int> arrivals(requests.size(), 0);
    const auto expected = run(config, requests, arrivals);
    config.lora.enabled = true;
    config.lora.modules = {{"zero", adapter("zero", {.rank = 8, .largest = 0})}};
    for (RandomRequest& request : requests) request.lora = "zero";
    const auto outputs = run(config, requests, arrivals);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_equal(outputs[i], expected[i], std::string(quantization) + ", " + std::to_string(i));
    }
  }
}

// Their layers keep their kernels. Those of an adapter are named as in a dense checkpoint.
TEST_F(LoraServing, AdaptersOfQuantisedBases) {
  const auto folder = std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/golden/quantised";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string model = entry.path().string();
    EngineConfig config = base_config(model);
    config.lora.enabled = true;
    config.lora.max_loras = 2;
    RandomAdapter random = {.rank = 4};
    if (model.ends_with("fused")) random.modules = {"qkv_proj", "gate_up_proj", "down_proj"};
    config.lora.modules.push_back({"some", adapter("some", random, model)});
    random.largest = 0;
    config.lora.modules.push_back({"zero", adapter("zero", random, model)});
    LLM llm(config);
    SamplingParams params = greedy_tokens(8);
    params.logprobs = 3;
    const auto outputs =
        llm.generate({prompt(), prompt(), prompt()}, std::vector(3, params), {"", "zero", "some"});
    expect_equal(outputs[1], outputs[0], model);
    EXPECT_FALSE(equal(outputs[2].outputs[0].logprobs, outputs[0].outputs[0].logprobs)) << model;
  }
}

TEST_F(LoraServing, DoraOfAQuantisedBaseIsThatOfItsDequantisedWeights) {
  for (const Float8Scales scales : {Float8Scales::kOutput, Float8Scales::kBlock}) {
    const Float8Model model(scales);
    const std::string dora = adapter("dora", {.rank = 8, .largest = 0.02F, .is_dora = true},
                                     model.dequantised().string());
    const auto logprobs_of = [&](const std::filesystem::path& base, const std::string& name) {
      EngineConfig config = base_config("qwen3-tied");
      config.model = base.string();
      config.dtype = "float32";
      config.lora.enabled = true;
      config.lora.modules = {{"dora", dora}};
      RandomRequest request;
      request.prompt = {1, 7, 90, 33, 12, 12, 80, 4, 51};
      request.params = greedy_tokens(1);
      request.params.prompt_logprobs = 0;
      request.lora = name;
      std::vector<float> logprobs;
      const std::vector<RequestOutput> outputs = run(config, {request}, {0});
      for (const auto& position : outputs[0].prompt_logprobs) {
        if (!position.empty()) logprobs.push_back(position.front().logprob);
      }
      return logprobs;
    };
    const std::vector<float> expected = logprobs_of(model.dequantised(), "dora");
    const std::vector<float> actual = logprobs_of(model.quantised(), "dora");
    const std::vector<float> base = logprobs_of(model.quantised(), "");
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 1e-4F);
      EXPECT_GT(std::abs(base[i] - expected[i]), 1e-2F) << "the adapter was meant to matter";
    }
  }
}

TEST_F(LoraServing, PrefixesAreSharedByWhatAnAdapterIs) {
  EngineConfig config = config_with(2);
  config.lora.modules.push_back({"a again", config.lora.modules[0].path});
  config.lora.max_loras = 3;
  LLM llm(config);
  const auto hits_of = [&](const std::string& lora) {
    const int64_t before = llm.engine().stats().prefix_cache_hits;
    tokens_of(llm, lora);
    return llm.engine().stats().prefix_cache_hits - before;
  };
  EXPECT_EQ(hits_of("a"), 0);
  EXPECT_EQ(hits_of(""), 0);
  EXPECT_EQ(hits_of("b"), 0);
  EXPECT_EQ(hits_of("a again"), 32);
  EXPECT_EQ(hits_of(""), 32);
  // A salt that looks like an adapter's key is none.
  const std::string hash = llm.engine().loras()[0].content_hash;
  llm.engine().add_request("salted", prompt(), greedy_tokens(1), {.cache_salt = hash + "\n"});
  const int64_t before = llm.engine().stats().prefix_cache_hits;
  while (!llm.engine().is_finished()) llm.engine().step();
  EXPECT_EQ(llm.engine().stats().prefix_cache_hits, before);
  EXPECT_EQ(llm.engine().stats().lora.num_loads, 3);
}

TEST_F(LoraServing, RunningRequestsKeepTheirWeights) {
  EngineConfig config = config_with(2);
  config.lora.max_loras = 1;
  LLM llm(config);
  const std::vector<int32_t> a = tokens_of(llm, "a");
  const std::vector<int32_t> b = tokens_of(llm, "b");
  ASSERT_NE(a, b);
  LLMEngine& engine = llm.engine();
  const auto add = [&](const std::string& id, const std::string& lora) {
    engine.add_request(id, prompt(), greedy_tokens(12),
                       {.output_kind = OutputKind::kFinalOnly, .lora = lora});
  };
  std::map<std::string, std::vector<int32_t>> results;
  const auto finish = [&] {
    while (!engine.is_finished()) {
      for (const RequestOutput& output : engine.step()) {
        results[output.request_id] = output.outputs[0].token_ids;
      }
    }
  };
  add("old", "a");
  for (int i = 0; i < 4; ++i) engine.step();
  engine.load_lora("a", config.lora.modules[1].path, /*replace=*/true);
  add("new", "a");
  for (int i = 0; i < 3; ++i) engine.step();
  EXPECT_THAT(engine.stats().lora.running, ElementsAre("a"));
  EXPECT_THAT(engine.stats().lora.waiting, ElementsAre("a"));
  engine.unload_lora("a");
  EXPECT_THAT(error_of_lora([&] { add("late", "a"); }),
              HasSubstr("There is no adapter \"a\"; loaded are b."));
  finish();
  EXPECT_EQ(results["old"], a);
  EXPECT_EQ(results["new"], b);
  EXPECT_EQ(engine.stats().lora.num_waits, 1);
  EXPECT_TRUE(engine.stats().lora.running.empty());
}

// Whatever becomes of their name meanwhile: nothing is read when the request is added.
TEST_F(LoraServing, ARequestHasTheWeightsThatItWasGiven) {
  EngineConfig config = config_with(2);
  config.lora.max_loras = 1;
  LLM llm(config);
  const std::vector<int32_t> a = tokens_of(llm, "a");
  LLMEngine& engine = llm.engine();
  const HeldLora held = engine.hold_lora("a");
  const auto tokens_with_held = [&] {
    engine.add_request("x", prompt(), greedy_tokens(12),
                       {.output_kind = OutputKind::kFinalOnly, .lora = "a", .lora_weights = held});
    std::vector<int32_t> tokens;
    while (!engine.is_finished()) {
      for (const RequestOutput& output : engine.step()) tokens = output.outputs[0].token_ids;
    }
    return tokens;
  };
  engine.load_lora("a", config.lora.modules[1].path, /*replace=*/true);
  const int64_t num_loads = engine.stats().lora.num_loads;
  EXPECT_EQ(tokens_with_held(), a);
  engine.unload_lora("a");
  EXPECT_EQ(tokens_with_held(), a);
  EXPECT_EQ(engine.stats().lora.num_loads, num_loads);
}

TEST_F(LoraServing, AdaptersThatWereNotUsedLeaveMemory) {
  EngineConfig config = config_with(4);
  config.lora.max_loras = 1;
  config.lora.max_cpu_loras = 2;
  LLM llm(config);
  const auto in_memory = [&] {
    std::string names;
    for (const LoraAdapterInfo& info : llm.engine().loras()) {
      if (info.in_host_memory) names += info.name;
    }
    return names;
  };
  EXPECT_EQ(in_memory(), "cd");
  const std::vector<int32_t> a = tokens_of(llm, "a");
  EXPECT_EQ(in_memory(), "ad");
  tokens_of(llm, "b");
  EXPECT_EQ(in_memory(), "ab");
  tokens_of(llm, "a");
  tokens_of(llm, "c");
  EXPECT_EQ(in_memory(), "ac");
  EXPECT_EQ(tokens_of(llm, "a"), a);
  EXPECT_EQ(llm.engine().stats().lora.num_loads, 4 + 3);
  EXPECT_EQ(llm.engine().stats().lora.num_evictions, 2 + 3);
  {
    const std::shared_ptr<const void> held = llm.engine().hold_lora("d");
    tokens_of(llm, "b");
    tokens_of(llm, "c");
    EXPECT_EQ(in_memory(), "bcd");
  }
  EXPECT_EQ(in_memory(), "bc");
  const LoraAdapterInfo info = llm.engine().loras()[0];
  EXPECT_EQ(info.name, "a");
  EXPECT_EQ(info.kind, "LoRA");
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.parent, config.model);
  EXPECT_EQ(info.content_hash.size(), 64);
}

// Many adapters take turns in one slot, and requests of the base pass them.
TEST_F(LoraServing, AdaptersTakeTurns) {
  EngineConfig config = config_with(4);
  std::vector<Prompt> prompts;
  std::vector<std::string> loras;
  for (int i = 0; i < 12; ++i) {
    prompts.emplace_back(prompt(i + 1));
    loras.push_back(i % 5 == 4 ? "" : std::string(1, static_cast<char>('a' + i % 5)));
  }
  const std::vector<SamplingParams> params(prompts.size(), greedy_tokens(9));
  const auto expected = LLM(config).generate(prompts, params, loras);
  config.lora.max_loras = 1;
  LLM llm(config);
  const auto outputs = llm.generate(prompts, params, loras);
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_EQ(outputs[i].outputs[0].token_ids, expected[i].outputs[0].token_ids) << i;
  }
  EXPECT_GT(llm.engine().stats().lora.num_waits, 0);
}

TEST_F(LoraServing, SaysWhatIsWrong) {
  EngineConfig config = config_with(1);
  config.lora.max_lora_rank = 4;
  LLM llm(config);
  LLMEngine& engine = llm.engine();
  const auto error_of_load = [&](const std::string& name, const std::string& path) {
    return error_of_lora([&] { engine.load_lora(name, path); });
  };
  EXPECT_THAT(error_of_load("a", config.lora.modules[0].path),
              HasSubstr("There is an adapter \"a\" already"));
  EXPECT_THAT(error_of_load("", config.lora.modules[0].path), HasSubstr("has 0 bytes"));
  EXPECT_THAT(error_of_load("x", (root_.path() / "nowhere").string()), HasSubstr("nowhere"));
  EXPECT_THAT(error_of_load("x", adapter("large", {.rank = 5})),
              HasSubstr("is 5; expected at most --max-lora-rank, which is 4."));
  EXPECT_THAT(error_of_load("x", adapter("other", {.rank = 2}, "llama3")),
              HasSubstr("Is it an adapter of another model?"));
  EXPECT_THAT(error_of_load("x", adapter("nan", {.rank = 2, .largest = NAN})), HasSubstr("NaN"));
  EXPECT_THAT(error_of_lora([&] { engine.unload_lora("x"); }),
              HasSubstr("There is no adapter \"x\"; loaded are a."));
  EXPECT_EQ(engine.loras().size(), 1);
  EXPECT_EQ(tokens_of(llm, "a").size(), 12);

  EngineConfig plain = base_config(kModel);
  LLM without(plain);
  EXPECT_THAT(error_of_lora([&] { tokens_of(without, "a"); }), HasSubstr("--enable-lora"));
  EXPECT_THAT(error_of_lora([&] { without.engine().load_lora("a", "b"); }),
              HasSubstr("--enable-lora"));
  plain.lora.modules = config.lora.modules;
  EXPECT_THAT(error_of_lora([&] { LLMEngine engine_of(plain); }),
              HasSubstr("--lora-modules needs"));
  plain.lora.enabled = true;
  plain.lora.max_loras = 0;
  EXPECT_THAT(error_of_lora([&] { LLMEngine engine_of(plain); }), HasSubstr("--max-loras is 0"));
  plain.lora.max_loras = 3;
  plain.lora.max_cpu_loras = 2;
  EXPECT_THAT(error_of_lora([&] { LLMEngine engine_of(plain); }),
              HasSubstr("--max-cpu-loras is 2"));
}

TEST_F(LoraServing, PlansRoomForAdapters) {
  EngineConfig config = config_with(1);
  const auto planned = [&](int max_loras) {
    config.lora.max_loras = max_loras;
    for (const PlannedBuffer& buffer : plan(config).buffers) {
      if (buffer.name == "adapters") return buffer.bytes;
    }
    return int64_t{0};
  };
  const int64_t one = planned(1);
  EXPECT_GT(one, 0);
  EXPECT_EQ(planned(3) - planned(2), planned(2) - one);
  EXPECT_GT(planned(2), one);
  config.lora = {};
  for (const PlannedBuffer& buffer : plan(config).buffers) EXPECT_NE(buffer.name, "adapters");
}

// From many threads at once. Each name stands for one of two adapters, in turn, and "c" always for
// one of them; what each request gets are the tokens of one.
TEST_F(LoraServing, LoadsUnloadsAndAbortsFromManyThreads) {
  EngineConfig config = config_with(3);
  config.lora.max_loras = 2;
  config.lora.max_cpu_loras = 2;
  std::vector<std::string> others;
  for (uint64_t i = 0; i < 3; ++i) {
    others.push_back(adapter("other" + std::to_string(i), {.seed = 10 + i, .rank = 5}));
  }
  std::vector<std::set<std::vector<int32_t>>> expected(3);
  {
    LLM llm(config);
    for (size_t i = 0; i < 3; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      expected[i].insert(tokens_of(llm, name));
      llm.engine().load_lora(name, others[i], true);
      expected[i].insert(tokens_of(llm, name));
      ASSERT_EQ(expected[i].size(), 2) << name;
    }
  }
  AsyncLLM llm(config);
  std::atomic<int> num_asked = 0;  // of "c"
  std::atomic<int> num_answered = 0;
  std::atomic<int> num_wrong = 0;
  const auto work = [&](uint32_t seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 12; ++i) {
      const size_t which = random() % 3;
      const bool is_always_there = which == 2;
      const std::string name(1, static_cast<char>('a' + which));
      try {
        if (random() % 3 == 0) {
          if (!is_always_there) llm.unload_lora(name);
          const std::string& own = config.lora.modules[which].path;
          llm.load_lora(name, random() % 2 == 0 ? own : others[which], true);
        }
        RequestStream stream = llm.generate(prompt(), greedy_tokens(12),
                                            {.output_kind = OutputKind::kCumulative, .lora = name});
        if (random() % 3 == 0) continue;  // which cancels it
        if (is_always_there) ++num_asked;
        std::vector<int32_t> tokens;
        while (auto output = stream.next()) tokens = output->outputs[0].token_ids;
        if (!expected[which].contains(tokens)) ++num_wrong;
        if (is_always_there) ++num_answered;
      } catch (const Error& error) {
        // Another thread has unloaded it.
        const bool is_unloaded =
            std::string(error.what()).find("There is no adapter") != std::string::npos;
        if (is_always_there || !is_unloaded) ++num_wrong;
      }
      llm.loras();
      llm.stats();
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0);
  EXPECT_GT(num_answered, 0);
  EXPECT_EQ(num_answered, num_asked);
}

}  // namespace
}  // namespace quire
