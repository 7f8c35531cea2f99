#include "server/answer/chat_format.h"

#include <gtest/gtest.h>

#include <string>

#include "server/answer/format_test_util.h"
#include "server/api/api_schemas.h"

namespace quire::server {
namespace {

constexpr std::string_view kHead =
    R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"lexicon",)";

std::string event(const std::string& rest) {
  return std::string(kHead) + rest + "}\n\n";
}

TEST(ChatFormat, StreamIsOpenAisByteForByte) {
  ChatFormatter formatter(parse_chat(chat_body(R"("stream": true)")), test_context());
  EXPECT_EQ(
      formatter.begin(),
      event(
          R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])"));
  EXPECT_EQ(
      formatter.push(0, output_of("He said \"é\"\n")),
      event(
          R"("choices":[{"index":0,"delta":{"content":"He said \"é\"\n"},"logprobs":null,"finish_reason":null}])"));
  EXPECT_EQ(formatter.push(0, output_of("")), "");
  EXPECT_FALSE(formatter.done());
  EXPECT_EQ(
      formatter.push(0, output_of("!", {2}, FinishReason::kStop)),
      event(
          R"("choices":[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":null}])") +
          event(
              R"("choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null}])"));
  EXPECT_TRUE(formatter.done());
  EXPECT_EQ(formatter.end(), "data: [DONE]\n\n");
  EXPECT_EQ(formatter.finish_reason(), "stop");
}

TEST(ChatFormat, UsageComesLastWhereAskedFor) {
  ChatFormatter formatter(
      parse_chat(chat_body(R"("stream": true, "stream_options": {"include_usage": true})")),
      test_context());
  EXPECT_NE(formatter.begin().find(R"("finish_reason":null}],"usage":null})"), std::string::npos);
  RequestOutput output = output_of("a", {1, 2}, FinishReason::kLength);
  output.prompt_token_ids = {5, 6, 7};
  output.num_cached_tokens = 2;
  EXPECT_NE(formatter.push(0, output).find(R"("usage":null})"), std::string::npos);
  EXPECT_EQ(
      formatter.end(),
      event(
          R"("choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":0}})") +
          "data: [DONE]\n\n");
}

TEST(ChatFormat, UsageCountsDraftsWhereAskedFor) {
  ChatFormatter formatter(parse_chat(chat_body(R"("return_draft_usage": true)")), test_context());
  RequestOutput output = output_of("a", {1, 2});
  output.metrics.num_drafts = 2;
  output.metrics.num_draft_tokens = 8;
  output.metrics.num_accepted_draft_tokens = 3;
  formatter.push(0, output);  // counts since the request's beginning
  output.metrics.num_drafts = 4;
  output.metrics.num_draft_tokens = 16;
  output.metrics.num_accepted_draft_tokens = 6;
  output.outputs[0].finish_reason = FinishReason::kStop;
  formatter.push(0, output);
  EXPECT_NE(
      formatter.end().find(
          R"("accepted_prediction_tokens":6,"rejected_prediction_tokens":10,"mean_acceptance_length":2.5}})"),
      std::string::npos);
}

TEST(ChatFormat, DraftUsageOfAnAnswerWithoutDrafts) {
  ChatFormatter formatter(parse_chat(chat_body(R"("return_draft_usage": true)")), test_context());
  formatter.push(0, output_of("a", {1}, FinishReason::kStop));
  EXPECT_NE(
      formatter.end().find(
          R"("accepted_prediction_tokens":0,"rejected_prediction_tokens":0,"mean_acceptance_length":null}})"),
      std::string::npos);
}

TEST(ChatFormat, WholeAnswer) {
  ChatFormatter formatter(parse_chat(chat_body()), test_context());
  EXPECT_EQ(formatter.begin(), "");
  EXPECT_EQ(formatter.push(0, output_of("Hello ")), "");
  EXPECT_EQ(formatter.push(0, output_of("there", {2}, FinishReason::kStop)), "");
  EXPECT_EQ(
      formatter.end(),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"lexicon","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there","refusal":null},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":0,"completion_tokens":2,"total_tokens":2,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}})");
}

TEST(ChatFormat, StopReasons) {
  const auto stop_reason = [](const std::string& reason, FinishReason finish) {
    ChatFormatter formatter(parse_chat(chat_body(R"("stop": ["END", "12"])")), test_context());
    formatter.begin();
    RequestOutput output = output_of("", {1}, finish);
    output.outputs[0].stop_reason = reason;
    formatter.push(0, output);
    const Json choice = Json::parse(formatter.end())["choices"][0];
    return choice["finish_reason"].dump() + " " + choice["stop_reason"].dump() + " " +
           formatter.finish_reason();
  };
  EXPECT_EQ(stop_reason("END", FinishReason::kStop), R"("stop" "END" stop)");
  EXPECT_EQ(stop_reason("12", FinishReason::kStop), R"("stop" "12" stop)");
  EXPECT_EQ(stop_reason("13", FinishReason::kStop), R"("stop" 13 stop)");
  EXPECT_EQ(stop_reason("", FinishReason::kAbort), R"("abort" null abort)");
  EXPECT_EQ(stop_reason("timeout", FinishReason::kLength), R"("length" "timeout" timeout)");
}

TEST(ChatFormat, SaysWhatWasSteeredToItsEnd) {
  for (const char* fields : {"", R"("stream": true)"}) {
    ChatFormatter formatter(parse_chat(chat_body(fields)), test_context());
    std::string answer = formatter.begin();
    RequestOutput output = output_of("{}", {1}, FinishReason::kLength);
    output.outputs[0].steered_to_end = true;
    answer += formatter.push(0, output);
    answer += formatter.end();
    EXPECT_NE(answer.find(R"("finish_reason":"length","stop_reason":null,"steered_to_end":true)"),
              std::string::npos)
        << answer;
  }
}

TEST(ChatFormat, ReasoningIsApart) {
  const OutputParserConfig qwen3{.reasoning = ReasoningFormat::kQwen3, .next_tool_call_id = {}};
  ChatFormatter formatter(parse_chat(chat_body(R"("stream": true)")), test_context(qwen3));
  formatter.begin();
  EXPECT_EQ(formatter.push(0, output_of("<think>\n")), "");
  EXPECT_NE(formatter.push(0, output_of("Hm")).find(R"("delta":{"reasoning_content":"Hm"})"),
            std::string::npos);
  const std::string rest =
      formatter.push(0, output_of("\n</think>\n\nYes", {1, 2, 3}, FinishReason::kStop));
  EXPECT_NE(rest.find(R"("delta":{"content":"Yes"})"), std::string::npos) << rest;
  EXPECT_EQ(formatter.usage().reasoning_tokens, 2);
  EXPECT_EQ(formatter.usage().completion_tokens, 5);

  ChatFormatter whole(parse_chat(chat_body(R"("include_reasoning": false)")), test_context(qwen3));
  whole.begin();
  whole.push(0, output_of("<think>\nHm\n</think>\n\nYes", {1}, FinishReason::kStop));
  EXPECT_EQ(Json::parse(whole.end())["choices"][0]["message"].dump(),
            R"({"role":"assistant","content":"Yes","refusal":null})");

  // Tokens that came together: two of the six letters are reasoning.
  ChatFormatter together(parse_chat(chat_body("")), test_context(qwen3));
  together.begin();
  together.push(0, output_of("<think>\nHm\n</think>\n\nYes.", {1, 2, 3}, FinishReason::kStop));
  EXPECT_EQ(together.usage().reasoning_tokens, 1);
}

TEST(ChatFormat, ToolCalls) {
  const OutputParserConfig hermes{.tools = ToolFormat::kHermes, .next_tool_call_id = {}};
  constexpr const char* kCall =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  ChatFormatter stream(parse_chat(chat_body(R"("stream": true)")), test_context(hermes));
  const std::string events =
      stream.begin() + stream.push(0, output_of(kCall, {1}, FinishReason::kStop)) + stream.end();
  EXPECT_NE(events.find(R"("type":"function","function":{"name":"f","arguments":)"),
            std::string::npos);
  const Json choice = reassemble(events)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"a": 1})");

  ChatFormatter whole(parse_chat(chat_body()), test_context(hermes));
  whole.begin();
  whole.push(0, output_of(kCall, {1}, FinishReason::kStop));
  const Json message = Json::parse(whole.end())["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(whole.finish_reason(), "tool_calls");
}

TEST(ChatFormat, TheOnlyCallAllowedEndsTheAnswer) {
  OutputParserConfig config{.tools = ToolFormat::kHermes, .next_tool_call_id = {}};
  config.parallel_tool_calls = false;
  ChatFormatter formatter(parse_chat(chat_body()), test_context(config));
  formatter.begin();
  formatter.push(
      0, output_of("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n", {1}));
  EXPECT_TRUE(formatter.done());
  formatter.push(0, output_of("", {}, FinishReason::kAbort));
  EXPECT_EQ(formatter.finish_reason(), "tool_calls");
}

TEST(ChatFormat, Logprobs) {
  ChatFormatter formatter(parse_chat(chat_body(R"("logprobs": true, "top_logprobs": 2)")),
                          test_context());
  formatter.begin();
  RequestOutput output = output_of("é", {4}, FinishReason::kStop);
  const float lowest = -std::numeric_limits<float>::infinity();
  output.outputs[0].logprobs = {{{4, -0.5F, 1, "é"}, {4, -0.5F, 1, "é"}, {5, lowest, 2, "x"}}};
  formatter.push(0, output);
  EXPECT_EQ(
      Json::parse(formatter.end())["choices"][0]["logprobs"].dump(),
      R"({"content":[{"token":"é","logprob":-0.5,"bytes":[195,169],"top_logprobs":[{"token":"é","logprob":-0.5,"bytes":[195,169]},{"token":"x","logprob":-9999.0,"bytes":[120]}]}]})");
}

TEST(ChatFormat, EchoOpensWithTheLastMessage) {
  const std::string body =
      R"({"messages": [{"role": "assistant", "content": "Once "}], "echo": true, "continue_final_message": true)";
  ChatFormatter whole(parse_chat(body + "}"), test_context());
  whole.begin();
  whole.push(0, output_of("upon", {1}, FinishReason::kStop));
  EXPECT_EQ(Json::parse(whole.end())["choices"][0]["message"]["content"], "Once upon");
  ChatFormatter stream(parse_chat(body + R"(, "stream": true})"), test_context());
  const std::string events =
      stream.begin() + stream.push(0, output_of("upon", {1}, FinishReason::kStop));
  EXPECT_EQ(reassemble(events)["choices"][0]["message"]["content"], "Once upon");
}

TEST(ChatFormat, AFailureEndsTheStream) {
  ChatFormatter formatter(parse_chat(chat_body(R"("stream": true)")), test_context());
  formatter.begin();
  EXPECT_EQ(
      formatter.fail(server_error("The engine failed.")),
      R"(data: {"error":{"message":"The engine failed.","type":"server_error","param":null,"code":"internal_error"}})"
      "\n\ndata: [DONE]\n\n");
}

TEST(ChatFormat, EndedChoicesSayNoMore) {
  ChatFormatter formatter(parse_chat(chat_body(R"("stream": true, "n": 2)")), test_context());
  EXPECT_EQ(events_of(formatter.begin()).size(), 2u);
  RequestOutput output = output_of("a", {1}, FinishReason::kStop);
  output.outputs.push_back(output.outputs[0]);
  output.outputs[1].index = 1;
  output.outputs[1].finish_reason.reset();
  EXPECT_EQ(events_of(formatter.push(0, output)).size(), 3u);
  EXPECT_FALSE(formatter.done());
  output.outputs[0].text = "";
  EXPECT_EQ(events_of(formatter.push(0, output)).size(), 1u);
}

}  // namespace
}  // namespace quire::server
