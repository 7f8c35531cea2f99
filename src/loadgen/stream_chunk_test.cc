#include "loadgen/stream_chunk.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::loadgen {
namespace {

StreamChunk parsed(std::string_view json) {
  StreamChunk chunk;
  EXPECT_TRUE(parse_stream_chunk(json, true, chunk)) << json;
  return chunk;
}

TEST(StreamChunk, OfTheCompletionsEndpoint) {
  const StreamChunk chunk = parsed(
      R"({"id":"cmpl-1","object":"text_completion","created":1,"model":"m",
          "choices":[{"index":0,"text":" a\n","logprobs":null,"finish_reason":null}],"usage":null})");
  EXPECT_TRUE(chunk.has_output);
  EXPECT_EQ(chunk.text, " a\n");
  EXPECT_FALSE(chunk.completion_tokens);
  EXPECT_FALSE(chunk.error);
}

TEST(StreamChunk, OfTheChatEndpoint) {
  EXPECT_FALSE(
      parsed(R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})").has_output);
  EXPECT_FALSE(parsed(R"({"choices":[{"delta":{"content":null,"tool_calls":[]}}]})").has_output);
  EXPECT_FALSE(parsed(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})").has_output);
  const StreamChunk content = parsed(R"({"choices":[{"delta":{"content":"hi"}}]})");
  EXPECT_TRUE(content.has_output);
  EXPECT_EQ(content.text, "hi");
  EXPECT_EQ(parsed(R"({"choices":[{"delta":{"reasoning_content":"so"}}]})").text, "so");
  EXPECT_TRUE(parsed(R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})").has_output);
  EXPECT_TRUE(parsed(R"({"choices":[{"delta":{},"token_ids":[5]}]})").has_output);
}

TEST(StreamChunk, Usage) {
  const StreamChunk chunk = parsed(
      R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,
          "prompt_tokens_details":{"cached_tokens":4}}})");
  EXPECT_FALSE(chunk.has_output);
  EXPECT_EQ(chunk.prompt_tokens, 7);
  EXPECT_EQ(chunk.completion_tokens, 3);
  EXPECT_EQ(chunk.cached_tokens, 4);
  EXPECT_EQ(parsed(R"({"usage":{"prompt_tokens_details":null,"prompt_tokens":1}})").prompt_tokens,
            1);
}

TEST(StreamChunk, Errors) {
  EXPECT_EQ(parsed(R"({"error":{"message":"out of \"blocks\"","type":"x"}})").error,
            "out of \"blocks\"");
  EXPECT_EQ(parsed(R"({"error":"plain"})").error, "plain");
  EXPECT_EQ(parsed(R"({"error":{}})").error, "an error without a message");
  EXPECT_EQ(parsed(R"({"error":1})").error, "an error without a message");
  EXPECT_FALSE(parsed(R"({"error":null})").error);
}

TEST(StreamChunk, TextOfTheFirstChoiceOnly) {
  EXPECT_EQ(parsed(R"({"choices":[{"text":"a"},{"text":"b"}]})").text, "a");
}

TEST(StreamChunk, NoTextUnlessAsked) {
  StreamChunk chunk;
  ASSERT_TRUE(parse_stream_chunk(R"({"choices":[{"text":"a"}]})", false, chunk));
  EXPECT_TRUE(chunk.has_output);
  EXPECT_EQ(chunk.text, "");
}

TEST(StreamChunk, RefusesWhatIsNone) {
  StreamChunk chunk;
  for (const char* text :
       {"", "hello", "[]", "3", R"({"choices":[1]})", R"({"choices":[{"text":5}]})",
        R"({"usage":{"prompt_tokens":-1}})", R"({"usage":{"prompt_tokens":"1"}})",
        R"({"choices":[{"text":"a"}])", R"({} {})", R"({"error":{"message":"x"})"}) {
    EXPECT_FALSE(parse_stream_chunk(text, true, chunk)) << text;
  }
}

TEST(ErrorMessageOf, FindsTheSentence) {
  EXPECT_EQ(error_message_of(R"({"error":{"message":"no such model"}})"), "no such model");
  EXPECT_EQ(error_message_of(R"({"object":"error","message":"bad"})"), "bad");
  EXPECT_EQ(error_message_of(R"({"detail":"Not Found"})"), "Not Found");
  EXPECT_EQ(error_message_of("Bad Gateway\r\n"), "Bad Gateway");
  EXPECT_EQ(error_message_of(" \n"), "an empty body");
  EXPECT_EQ(error_message_of(""), "an empty body");
}

TEST(ErrorMessageOf, ShortensBetweenCharacters) {
  std::string body;
  for (int i = 0; i < 1000; ++i) body += "\u20ac";
  const std::string message = error_message_of(body);
  EXPECT_LE(message.size(), kMaxErrorMessageBytes);
  EXPECT_EQ((message.size() - 3) % 3, 0);
  EXPECT_TRUE(message.ends_with("\u20ac..."));
}

}  // namespace
}  // namespace quire::loadgen
