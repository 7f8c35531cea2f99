#include "server/answer/completion_format.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "server/answer/format_test_util.h"

namespace quire::server {
namespace {

TEST(CompletionFormat, Stream) {
  CompletionFormatter formatter(parse_completion(completion_body(R"("stream": true)")),
                                test_context());
  EXPECT_EQ(formatter.begin(), "");
  EXPECT_EQ(
      formatter.push(0, output_of("a\tb")),
      R"(data: {"id":"chatcmpl-1","object":"text_completion","created":1700000000,"model":"lexicon","choices":[{"index":0,"text":"a\tb","logprobs":null,"finish_reason":null}]})"
      "\n\n");
  EXPECT_EQ(
      formatter.push(0, output_of("", {2}, FinishReason::kLength)),
      R"(data: {"id":"chatcmpl-1","object":"text_completion","created":1700000000,"model":"lexicon","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length","stop_reason":null}]})"
      "\n\n");
  EXPECT_EQ(formatter.end(), "data: [DONE]\n\n");
}

TEST(CompletionFormat, ChoicesOfSeveralPromptsAreCountedOn) {
  CompletionFormatter formatter(parse_completion(R"({"prompt": ["a", "b"], "n": 2})"),
                                test_context());
  formatter.begin();
  for (const size_t prompt : {1u, 0u}) {
    RequestOutput output;
    output.prompt_token_ids = {1, 2};
    output.num_cached_tokens = 1;
    output.outputs.resize(2);
    for (int i = 0; i < 2; ++i) {
      output.outputs[static_cast<size_t>(i)].index = i;
      output.outputs[static_cast<size_t>(i)].text = std::to_string(prompt) + std::to_string(i);
      output.outputs[static_cast<size_t>(i)].token_ids = {3};
      output.outputs[static_cast<size_t>(i)].finish_reason = FinishReason::kStop;
    }
    formatter.push(prompt, output);
  }
  const Json body = Json::parse(formatter.end());
  std::string texts;
  for (const Json& choice : body["choices"]) texts += choice["text"].get<std::string>() + " ";
  EXPECT_EQ(texts, "00 01 10 11 ");
  EXPECT_EQ(body["choices"][3]["index"], 3);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(body["usage"]["completion_tokens"], 4);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

RequestOutput with_logprobs() {
  RequestOutput output = output_of(" c", {9}, FinishReason::kStop);
  output.prompt_token_ids = {7, 8};
  output.prompt_logprobs = {{}, {{8, -2.0F, 3, "b"}, {6, -0.25F, 1, "x"}}};
  output.outputs[0].logprobs = {{{9, -0.5F, 1, " c"}, {9, -0.5F, 1, " c"}}};
  return output;
}

TEST(CompletionFormat, LogprobsInTheOldForm) {
  CompletionFormatter formatter(parse_completion(completion_body(R"("logprobs": 1)")),
                                test_context());
  formatter.push(0, with_logprobs());
  EXPECT_EQ(
      Json::parse(formatter.end())["choices"][0]["logprobs"].dump(),
      R"({"text_offset":[0],"token_logprobs":[-0.5],"tokens":[" c"],"top_logprobs":[{" c":-0.5}]})");
}

TEST(CompletionFormat, EchoOpensWithThePrompt) {
  CompletionFormatter formatter(parse_completion(completion_body(R"("echo": true, "logprobs": 1)")),
                                test_context());
  formatter.push(0, with_logprobs());
  const Json choice = Json::parse(formatter.end())["choices"][0];
  EXPECT_EQ(choice["text"], "hi c");
  EXPECT_EQ(
      choice["logprobs"].dump(),
      R"({"text_offset":[0,0,1],"token_logprobs":[null,-2.0,-0.5],"tokens":["","b"," c"],"top_logprobs":[null,{"b":-2.0,"x":-0.25},{" c":-0.5}]})");
}

TEST(CompletionFormat, EchoOfTokenIdsIsTheirText) {
  const Tokenizer tokenizer = small_tokenizer();
  FormatContext context = test_context();
  context.tokenizer = &tokenizer;
  CompletionFormatter formatter(
      parse_completion(R"({"prompt": [[2, 3, 0], [8191, 1]], "echo": true, "logprobs": 0})"),
      std::move(context));
  for (const size_t prompt : {0u, 1u}) {
    RequestOutput output = output_of("!", {9}, FinishReason::kStop);
    output.prompt_token_ids = {2 - static_cast<int32_t>(prompt)};
    output.prompt_logprobs = {{}};
    output.outputs[0].logprobs = {{{9, -1.0F, 1, "!"}}};
    formatter.push(prompt, output);
  }
  const Json choices = Json::parse(formatter.end())["choices"];
  EXPECT_EQ(choices[0]["text"], "ab a!");
  EXPECT_EQ(choices[0]["logprobs"]["tokens"].dump(), R"(["ab","!"])");
  EXPECT_EQ(choices[0]["logprobs"]["text_offset"].dump(), "[0,2]");
  EXPECT_EQ(choices[1]["text"], "b!");
}

TEST(CompletionFormat, PromptLogprobsAndIds) {
  CompletionFormatter formatter(
      parse_completion(completion_body(
          R"("prompt_logprobs": 1, "return_token_ids": true, "logprobs": 0, "return_tokens_as_token_ids": true)")),
      test_context());
  formatter.push(0, with_logprobs());
  const Json choice = Json::parse(formatter.end())["choices"][0];
  EXPECT_EQ(
      choice["prompt_logprobs"].dump(),
      R"([null,{"8":{"logprob":-2.0,"rank":3,"decoded_token":"b"},"6":{"logprob":-0.25,"rank":1,"decoded_token":"x"}}])");
  EXPECT_EQ(choice["token_ids"].dump(), "[9]");
  EXPECT_EQ(choice["prompt_token_ids"].dump(), "[7,8]");
  EXPECT_EQ(choice["logprobs"]["tokens"].dump(), R"(["token_id:9"])");
}

TEST(CompletionFormat, UsageInEveryEvent) {
  CompletionFormatter formatter(
      parse_completion(completion_body(
          R"("stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true})")),
      test_context());
  const auto tokens = [&](const RequestOutput& output) {
    return Json::parse(events_of(formatter.push(0, output)).at(0))["usage"]["completion_tokens"];
  };
  EXPECT_EQ(tokens(output_of("a")), 1);
  EXPECT_EQ(tokens(output_of("b", {1, 2})), 3);
  EXPECT_EQ(formatter.push(0, output_of("", {})), "");
}

TEST(CompletionFormat, ALargeAnswerComesInPieces) {
  constexpr size_t kPositions = 20'000;
  CompletionFormatter formatter(
      parse_completion(R"({"prompt": [7, 8], "prompt_logprobs": 1, "logprobs": 1, "echo": true})"),
      test_context());
  RequestOutput output = output_of(" c", {9}, FinishReason::kStop);
  output.prompt_token_ids = {7, 8};
  output.prompt_logprobs.assign(kPositions, {{8, -2.0F, 3, "b"}, {6, -0.25F, 1, "x"}});
  output.prompt_logprobs.front().clear();
  output.outputs[0].logprobs = {{{9, -0.5F, 1, " c"}}};
  formatter.push(0, std::move(output));
  std::string text = formatter.end();
  EXPECT_TRUE(formatter.more_follows());
  while (formatter.more_follows()) {
    const std::string piece = formatter.next_piece();
    EXPECT_LT(piece.size(), ResponseFormatter::kPieceBytes + 1000);
    text += piece;
  }
  const Json choice = Json::parse(text)["choices"][0];
  EXPECT_EQ(choice["prompt_logprobs"].size(), kPositions);
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), kPositions + 1);
  EXPECT_EQ(choice["logprobs"]["text_offset"].back(), kPositions - 1);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][5], Json::parse(R"({"b": -2.0, "x": -0.25})"));
}

}  // namespace
}  // namespace quire::server
