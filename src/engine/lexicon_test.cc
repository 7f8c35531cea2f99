// The bundled model through the public API, against transformers in float32
// (scripts/make_lexicon_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/sanitized_test_util.h"
#include "quire/async_llm.h"
#include "quire/chat_input.h"
#include "quire/llm.h"

namespace quire {
namespace {

EngineConfig lexicon() {
  EngineConfig config;
  config.model = std::string(QUIRE_SOURCE_DIR) + "/models/lexicon";
  config.threads = 2;
  return config;
}

ChatInput ask(const std::string& question) {
  ChatInput input;
  input.messages = messages_to_json({{"user", question}});
  return input;
}

TEST(Lexicon, GreedyTokensAreThoseOfTransformers) {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/lexicon/prompts.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  EngineConfig config = lexicon();
  config.dtype = "float32";
  LLM llm(config);
  ASSERT_EQ(golden.size(), 200u);
  constexpr size_t kStep = kSanitized ? 40 : 1;
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < golden.size(); i += kStep) {
    const auto ids = golden[i]["prompt_ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(llm.engine().tokenizer().encode(golden[i]["prompt"].get<std::string>(), false), ids);
    prompts.emplace_back(ids);
  }
  const auto outputs = llm.generate(prompts, {.temperature = 0, .max_tokens = 64});
  ASSERT_EQ(outputs.size(), prompts.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& expected = golden[i * kStep];
    EXPECT_EQ(outputs[i].outputs[0].token_ids, expected["output_ids"].get<std::vector<int32_t>>())
        << expected["prompt"];
  }
}

TEST(Lexicon, AnswersAQuestion) {
  LLM llm(lexicon());
  const auto outputs =
      llm.chat({ask("What does \"abandon\" mean?")}, {.temperature = 0, .max_tokens = 64});
  EXPECT_NE(outputs[0].outputs[0].text.find("forsake, leave behind"), std::string::npos)
      << outputs[0].outputs[0].text;
  EXPECT_EQ(outputs[0].outputs[0].finish_reason, FinishReason::kStop);
}

// Rounded as it loads, to integers with activations of int8 and of float32.
TEST(Lexicon, QuantisedItStillAnswers) {
  for (const std::string quantization : {"int8", "int4", "fp8"}) {
    for (const std::string dtype : {"auto", "float32"}) {
      // A sanitizer sees each kind of weight once.
      if (kSanitized && (quantization == "int4") != (dtype == "float32")) continue;
      EngineConfig config = lexicon();
      config.quantization = quantization;
      config.dtype = dtype;
      LLM llm(config);
      const auto outputs = llm.chat({ask("define apple")}, {.temperature = 0, .max_tokens = 64});
      EXPECT_NE(outputs[0].outputs[0].text.find("fruit with red or yellow or green skin"),
                std::string::npos)
          << quantization << ", " << dtype << ": " << outputs[0].outputs[0].text;
    }
  }
}

// A KV cache of a byte an element, against that of bfloat16: what it answers, and what it thinks of
// the other's answer.
TEST(Lexicon, WithANarrowCacheItStillAnswers) {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/lexicon/prompts.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  constexpr size_t kPrompts = 16;
  std::vector<Prompt> prompts, answered;
  for (size_t i = 0; i < kPrompts; ++i) {
    auto ids = golden[i]["prompt_ids"].get<std::vector<int32_t>>();
    prompts.emplace_back(ids);
    const auto answer = golden[i]["output_ids"].get<std::vector<int32_t>>();
    ids.insert(ids.end(), answer.begin(), answer.end());
    answered.emplace_back(ids);
  }
  struct Answers {
    std::vector<std::vector<int32_t>> ids;
    std::vector<float> logprobs;  // of the tokens of right answers
  };
  const auto answers_with = [&](const std::string& kv_cache_dtype) {
    EngineConfig config = lexicon();
    config.kv_cache_dtype = kv_cache_dtype;
    LLM llm(config);
    Answers answers;
    for (const RequestOutput& output :
         llm.generate(prompts, {.temperature = 0, .max_tokens = 64})) {
      answers.ids.push_back(output.outputs[0].token_ids);
    }
    SamplingParams params{.temperature = 0, .max_tokens = 1};
    params.prompt_logprobs = 0;
    const auto outputs = llm.generate(answered, params);
    for (size_t i = 0; i < kPrompts; ++i) {
      const auto& positions = outputs[i].prompt_logprobs;
      for (size_t p = golden[i]["prompt_ids"].size(); p < positions.size(); ++p) {
        answers.logprobs.push_back(positions[p].front().logprob);
      }
    }
    return answers;
  };
  struct Bound {
    const char* kv_cache_dtype;
    double mean_difference;  // of log-probabilities
  };
  const Answers expected = answers_with("auto");
  for (const Bound& bound : {Bound{"int8", 3e-4}, Bound{"fp8", 1.5e-3}, Bound{"fp8_e5m2", 3e-3}}) {
    const Answers actual = answers_with(bound.kv_cache_dtype);
    EXPECT_EQ(actual.ids, expected.ids) << bound.kv_cache_dtype;
    ASSERT_EQ(actual.logprobs.size(), expected.logprobs.size());
    double difference = 0;
    for (size_t i = 0; i < expected.logprobs.size(); ++i) {
      difference += std::abs(actual.logprobs[i] - expected.logprobs[i]);
    }
    EXPECT_LT(difference / static_cast<double>(expected.logprobs.size()), bound.mean_difference)
        << bound.kv_cache_dtype;
  }
}

TEST(Lexicon, StreamsTheSameTextInPieces) {
  LLM llm(lexicon());
  const SamplingParams params{.temperature = 0, .max_tokens = 64};
  const std::string whole = llm.chat({ask("define apple")}, params)[0].outputs[0].text;
  AsyncLLM async(lexicon());
  RequestStream stream = async.chat(ask("define apple"), params);
  std::string text;
  int pieces = 0;
  std::vector<int32_t> ids;
  while (auto output = stream.next()) {
    text += output->outputs[0].text;
    ids.insert(ids.end(), output->outputs[0].token_ids.begin(), output->outputs[0].token_ids.end());
    ++pieces;
  }
  EXPECT_EQ(text, whole);
  EXPECT_GE(pieces, 1);
  EXPECT_FALSE(ids.empty());
}

TEST(Lexicon, CutsTheTextAtAStopString) {
  LLM llm(lexicon());
  SamplingParams params{.temperature = 0, .max_tokens = 64};
  const std::string whole = llm.chat({ask("define apple")}, params)[0].outputs[0].text;
  ASSERT_GT(whole.size(), 12u);
  const std::string stop = whole.substr(8, 4);
  params.stop = {stop};
  const auto cut = llm.chat({ask("define apple")}, params)[0].outputs[0];
  EXPECT_EQ(cut.text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(cut.stop_reason, stop);
  EXPECT_EQ(cut.finish_reason, FinishReason::kStop);
  params.include_stop_str_in_output = true;
  EXPECT_EQ(llm.chat({ask("define apple")}, params)[0].outputs[0].text,
            whole.substr(0, whole.find(stop) + stop.size()));
}

TEST(Lexicon, FindsASharedPromptInTheCache) {
  LLM llm(lexicon());
  const SamplingParams params{.temperature = 0, .max_tokens = 8};
  const auto first = llm.chat({ask("What is the meaning of the word apple, please?")}, params)[0];
  const auto second = llm.chat({ask("What is the meaning of the word apple, please?")}, params)[0];
  EXPECT_EQ(first.num_cached_tokens, 0);
  EXPECT_EQ(second.num_cached_tokens,
            (static_cast<int64_t>(second.prompt_token_ids.size()) - 1) / 16 * 16);
  EXPECT_EQ(first.outputs[0].token_ids, second.outputs[0].token_ids);
}

}  // namespace
}  // namespace quire
