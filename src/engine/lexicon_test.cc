// The bundled model through the public API, against transformers in float32
// (scripts/make_lexicon_golden.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

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
  std::vector<Prompt> prompts;
  for (const auto& prompt : golden) {
    const auto ids = prompt["prompt_ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(llm.engine().tokenizer().encode(prompt["prompt"].get<std::string>(), false), ids);
    prompts.emplace_back(ids);
  }
  ASSERT_EQ(prompts.size(), 200u);
  const auto outputs = llm.generate(prompts, {.temperature = 0, .max_tokens = 64});
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_EQ(outputs[i].outputs[0].token_ids, golden[i]["output_ids"].get<std::vector<int32_t>>())
        << golden[i]["prompt"];
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

// Rounded to integers as it loads, with activations of int8 and of float32.
TEST(Lexicon, QuantisedItStillAnswers) {
  for (const char* quantization : {"int8", "int4"}) {
    for (const char* dtype : {"auto", "float32"}) {
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
