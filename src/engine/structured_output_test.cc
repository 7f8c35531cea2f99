// Answers of constrained requests, on the bundled model: each is a text of its constraint, whatever
// the sampling, the limits and the schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/constrained_requests.h"
#include "quire/async_llm.h"
#include "quire/error.h"
#include "quire/llm.h"

namespace quire {
namespace {

using testing::HasSubstr;
using namespace engine_test;  // NOLINT(google-build-using-namespace)

constexpr const char* kWords = "[a-z]+( [a-z]+){2,5}\\.";
constexpr const char* kNested = "\\{(\"[a-z]{1,9}\": (true|false|[0-9]{1,4})(, )?){1,3}\\}!!!";

bool matches(const std::string& pattern, const std::string& text) {
  return engine_test::matches(regex(pattern), text);
}

CompletionOutput answer_of(LLMEngine& engine, SamplingParams params) {
  return answers_of(engine, {{.params = std::move(params)}})[0].outputs[0];
}

std::string refusal_of(LLMEngine& engine, SamplingParams params) {
  try {
    engine.add_request("refused", "define apple", std::move(params));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class StructuredOutputTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { engine_ = new LLMEngine(lexicon_config()); }
  static void TearDownTestSuite() {
    delete engine_;
    engine_ = nullptr;
  }
  static LLMEngine& engine() { return *engine_; }

 private:
  static LLMEngine* engine_;
};
LLMEngine* StructuredOutputTest::engine_ = nullptr;

TEST_F(StructuredOutputTest, AnAnswerIsATextOfItsConstraint) {
  for (const double temperature : {0.0, 1.0, 2.0}) {
    for (const uint64_t seed : {1, 2, 3}) {
      SamplingParams params{.temperature = temperature, .max_tokens = 60, .seed = seed};
      params.structured_output = regex(kWords);
      const CompletionOutput words = answer_of(engine(), params);
      EXPECT_TRUE(matches(kWords, words.text)) << words.text;
      params.structured_output = choice({"a fruit", "a tree", "fruit"});
      const CompletionOutput chosen = answer_of(engine(), params);
      EXPECT_THAT(chosen.text, testing::AnyOf("a fruit", "a tree", "fruit"));
      EXPECT_EQ(chosen.finish_reason, FinishReason::kStop);
      EXPECT_FALSE(chosen.steered_to_end);
    }
  }
}

TEST_F(StructuredOutputTest, AnAnswerEndsInTimeWhateverTheLimit) {
  SamplingParams params{.temperature = 1.5, .max_tokens = 200, .seed = 5};
  params.structured_output = regex(kNested);
  int64_t shortest = 1;
  while (true) {
    params.max_tokens = shortest;
    const std::string refusal = refusal_of(engine(), params);
    if (refusal.empty()) break;
    EXPECT_THAT(refusal, HasSubstr("at least "));
    EXPECT_THAT(refusal, HasSubstr("max_tokens leaves room for " + std::to_string(shortest)));
    ASSERT_LT(++shortest, 20);
  }
  engine().abort("refused");
  while (!engine().is_finished()) engine().step();
  EXPECT_GT(shortest, 3);
  std::vector<ConstrainedRequest> requests;
  for (int64_t limit = shortest; limit < shortest + 30; ++limit) {
    params.max_tokens = limit;
    requests.push_back({.params = params});
    requests.back().params.temperature = static_cast<double>(limit % 3);
    requests.back().params.ignore_eos = limit % 2 == 0;
  }
  int num_steered = 0;
  for (const RequestOutput& output : answers_of(engine(), requests)) {
    const CompletionOutput& answer = output.outputs[0];
    EXPECT_TRUE(matches(kNested, answer.text)) << answer.text;
    num_steered += answer.steered_to_end ? 1 : 0;
    EXPECT_EQ(answer.finish_reason,
              answer.steered_to_end ? FinishReason::kLength : FinishReason::kStop);
  }
  EXPECT_GT(num_steered, 3);
}

TEST_F(StructuredOutputTest, TheContextIsALimitToo) {
  SamplingParams params{.temperature = 2, .max_tokens = std::nullopt, .seed = 1};
  params.structured_output = regex("[a-z ]{20,}\\.\\.\\.");
  std::string prompt;
  for (int i = 0; i < 75; ++i) prompt += "define apple ";
  const auto output = answers_of(engine(), {{.prompt = prompt, .params = params}})[0];
  EXPECT_LT(output.outputs[0].token_ids.size(), 256U - output.prompt_token_ids.size() + 1);
  EXPECT_TRUE(matches("[a-z ]{20,}\\.\\.\\.", output.outputs[0].text)) << output.outputs[0].text;
  for (int i = 0; i < 9; ++i) prompt += "define apple ";
  params.structured_output = regex("[a-z]{1200}");
  try {
    engine().add_request("long", prompt, params);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("max_model_len leaves room for "));
  }
}

TEST_F(StructuredOutputTest, WhatCannotBeCompiledIsRefused) {
  SamplingParams params;
  params.structured_output = regex("(a");
  EXPECT_THAT(refusal_of(engine(), params), HasSubstr("structured_output: "));
  params.structured_output = choice({""});
  EXPECT_THAT(refusal_of(engine(), params), HasSubstr("only the empty text fits"));
  params.structured_output = choice({"x"});
  params.structured_output->begins_after = std::string(65, '-');
  EXPECT_THAT(refusal_of(engine(), params), HasSubstr("begins_after has 65 bytes"));
}

TEST(StructuredOutput, NeedsATokenizer) {
  EngineConfig config = base_config("qwen3-tied");
  LLMEngine engine(config);
  SamplingParams params;
  params.structured_output = choice({"x"});
  try {
    engine.add_request("a", std::vector<int32_t>{1, 2}, params);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("needs a tokenizer"));
  }
}

TEST_F(StructuredOutputTest, EndsThatMayNotComeAreNotMissed) {
  SamplingParams params{.temperature = 1, .max_tokens = 40, .min_tokens = 12, .seed = 3};
  params.structured_output = choice({"apple", "pear"});
  for (const bool ignore_eos : {false, true}) {
    params.ignore_eos = ignore_eos;
    const CompletionOutput answer = answer_of(engine(), params);
    EXPECT_THAT(answer.text, testing::AnyOf("apple", "pear"));
    EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
  }
  // Where it can go on it does, up to a limit behind which it could not end.
  params.structured_output = regex("(abcdefgh)+");
  for (int64_t limit = 12; limit < 24; ++limit) {
    params.max_tokens = limit;
    const CompletionOutput answer = answer_of(engine(), params);
    EXPECT_TRUE(matches("(abcdefgh)+", answer.text)) << answer.text;
    EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
  }
}

TEST_F(StructuredOutputTest, OutputsOfARequestHaveTheirOwnPlaces) {
  SamplingParams params{.n = 3, .temperature = 1.5, .max_tokens = 50, .seed = 4};
  params.repetition_penalty = 1.3;
  params.presence_penalty = 0.5;
  params.structured_output = regex(kWords);
  const auto outputs = answers_of(engine(), {{.params = params}})[0].outputs;
  ASSERT_EQ(outputs.size(), 3U);
  for (const CompletionOutput& output : outputs) {
    EXPECT_TRUE(matches(kWords, output.text)) << output.text;
  }
  EXPECT_NE(outputs[0].text, outputs[1].text);
}

TEST_F(StructuredOutputTest, LogProbabilitiesAreThoseOfTheModel) {
  SamplingParams params{.temperature = 0, .max_tokens = 12, .logprobs = 3};
  const CompletionOutput free = answer_of(engine(), params);
  params.structured_output = regex("zebra [a-z]+\\.");
  const CompletionOutput answer = answer_of(engine(), params);
  EXPECT_TRUE(matches("zebra [a-z]+\\.", answer.text)) << answer.text;
  ASSERT_EQ(answer.logprobs[0].size(), 4U);
  EXPECT_EQ(answer.logprobs[0][0].token_id, answer.token_ids[0]);
  EXPECT_GT(answer.logprobs[0][0].rank, 1);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(answer.logprobs[0][i].token_id, free.logprobs[0][i].token_id);
    EXPECT_EQ(answer.logprobs[0][i].logprob, free.logprobs[0][i].logprob);
  }
}

// The runners of stages verify no drafts, so that each of their tokens is sampled.
TEST_F(StructuredOutputTest, TextThatNeedsNoChoiceTakesFewStepsAndItsTokensAreTheTokenizers) {
  constexpr const char* kSentence = "cats like to sleep in the sun, and zebras do remember it.";
  SamplingParams params{.temperature = 1, .max_tokens = 60, .seed = 1};
  params.logprobs = 0;
  params.structured_output = choice({kSentence});
  const int64_t steps_before = engine().stats().num_steps;
  const RequestOutput output = answers_of(engine(), {{.params = params}})[0];
  const int64_t num_steps = engine().stats().num_steps - steps_before;
  const CompletionOutput& answer = output.outputs[0];
  EXPECT_EQ(answer.text, kSentence);
  EXPECT_EQ(answer.token_ids, engine().tokenizer().encode(kSentence, false));
  EXPECT_EQ(answer.logprobs.size(), answer.token_ids.size());
  EXPECT_GT(std::ssize(answer.token_ids), 12);
  EXPECT_LE(num_steps, 3);
  EngineConfig config = lexicon_config();
  config.pipeline_parallel_size = 2;
  config.threads = 2;
  LLMEngine stages(config);
  expect_equal(answers_of(stages, {{.params = params}})[0], output, "in stages");
}

TEST_F(StructuredOutputTest, StopsCutAnAnswerAsAnyOther) {
  SamplingParams params{.temperature = 0, .max_tokens = 60, .stop = {" b"}};
  params.structured_output = regex("aaa bbb ccc");
  const CompletionOutput answer = answer_of(engine(), params);
  EXPECT_EQ(answer.text, "aaa");
  EXPECT_EQ(answer.stop_reason, " b");
  EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
}

TEST_F(StructuredOutputTest, TheConstraintBeginsBehindItsMarker) {
  for (const std::string marker : {"</think>", "e", ". "}) {
    SamplingParams params{.temperature = 1, .max_tokens = 40, .seed = 9};
    params.structured_output = choice({"yes", "no"});
    params.structured_output->begins_after = marker;
    const CompletionOutput answer = answer_of(engine(), params);
    const size_t end = answer.text.find(marker);
    ASSERT_NE(end, std::string::npos) << answer.text;
    EXPECT_THAT(answer.text.substr(end + marker.size()), testing::AnyOf("yes", "no"));
  }
}

// Where tokens run short the marker comes in time for the answer.
TEST_F(StructuredOutputTest, ReasoningEndsInTime) {
  std::vector<ConstrainedRequest> requests;
  SamplingParams params{.temperature = 1.5, .max_tokens = 200, .seed = 2};
  params.structured_output = choice({"an apple is a fruit", "no"});
  params.structured_output->begins_after = "</think>";
  for (int64_t limit = 1; limit < 40; ++limit) {
    params.max_tokens = limit;
    const std::string refusal = refusal_of(engine(), params);
    engine().abort("refused");
    while (!engine().is_finished()) engine().step();
    if (refusal.empty()) requests.push_back({.params = params});
  }
  EXPECT_GT(requests.size(), 25U);
  EXPECT_LT(requests.size(), 38U);
  int num_steered = 0;
  for (const RequestOutput& output : answers_of(engine(), requests)) {
    const CompletionOutput& answer = output.outputs[0];
    const size_t end = answer.text.find("</think>");
    ASSERT_NE(end, std::string::npos) << answer.text;
    EXPECT_THAT(answer.text.substr(end + 8), testing::AnyOf("an apple is a fruit", "no"));
    num_steered += answer.steered_to_end ? 1 : 0;
  }
  EXPECT_GT(num_steered, 25);
}

TEST_F(StructuredOutputTest, AnAbortLeavesTheOthersRight) {
  SamplingParams params{.temperature = 1, .max_tokens = 60, .seed = 7};
  params.structured_output = regex(kWords);
  const CompletionOutput alone = answer_of(engine(), params);
  SamplingParams longer = params;
  longer.structured_output = regex("[a-z ]{150,}");
  longer.max_tokens = 150;
  engine().add_request("aborted", "define apple", longer);
  for (int step = 0; step < 4; ++step) engine().step();
  engine().add_request("kept", "define apple", params, {.output_kind = OutputKind::kFinalOnly});
  engine().step();
  engine().abort("aborted");
  CompletionOutput kept;
  while (!engine().is_finished()) {
    for (const RequestOutput& output : engine().step()) {
      if (output.request_id == "kept") kept = output.outputs[0];
    }
  }
  EXPECT_EQ(kept.token_ids, alone.token_ids);
}

TEST(StructuredOutput, StreamsAsItComes) {
  AsyncLLM llm(lexicon_config());
  SamplingParams params{.temperature = 1, .max_tokens = 40, .seed = 3};
  params.structured_output = json_schema(R"({"type": "array", "items": {"type": "integer"}})");
  const auto compiled = llm.compile(*params.structured_output);
  RequestStream stream = llm.generate("define apple", params);
  std::string text;
  bool steered = false;
  while (const auto output = stream.next()) {
    text += output->outputs[0].text;
    steered = output->outputs[0].steered_to_end;
    if (output->finished) {
      EXPECT_EQ(output->outputs[0].finish_reason,
                steered ? FinishReason::kLength : FinishReason::kStop);
    }
  }
  EXPECT_TRUE(engine_test::matches(*params.structured_output, text)) << text;
  params.structured_output = json_schema("{\"type\": 7}");
  EXPECT_THROW(llm.generate("define apple", params), Error);
}

TEST_F(StructuredOutputTest, TagsAreFreeTextWithConstrainedParts) {
  SamplingParams params{.temperature = 1, .max_tokens = 60, .seed = 8};
  params.structured_output = StructuredOutput{.kind = StructuredOutput::Kind::kTags};
  params.structured_output->tags = {
      {.begin = "<call>", .json_schema = R"({"type": "boolean"})", .end = "</call>"}};
  params.structured_output->min_tags = 1;
  params.structured_output->max_tags = 2;
  const CompletionOutput answer = answer_of(engine(), params);
  EXPECT_TRUE(matches("(<call>(true|false)</call>){1,2}", answer.text)) << answer.text;
}

TEST_F(StructuredOutputTest, NeighboursDoNotNotice) {
  const SamplingParams free{.temperature = 1, .max_tokens = 30, .seed = 6, .logprobs = 2};
  const RequestOutput alone = answers_of(engine(), {{.params = free}})[0];
  SamplingParams constrained{.temperature = 1, .max_tokens = 30, .seed = 6};
  constrained.structured_output = regex(kWords);
  const auto outputs =
      answers_of(engine(), {{.params = constrained}, {.params = free}, {.params = constrained}});
  expect_equal(outputs[1], alone, "beside constrained ones");
  EXPECT_EQ(outputs[0].outputs[0].text, outputs[2].outputs[0].text);
}

}  // namespace
}  // namespace quire
