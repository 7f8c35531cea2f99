#include "server/api/tokenize_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/api/api_schemas.h"
#include "server/api/api_test_util.h"

namespace quire::server {
namespace {

TokenizeRequest parse_tokenize(const std::string& body) {
  return parse_tokenize_request(parse_object_body(body), test_model(), test_api());
}

TEST(TokenizeRequest, OfAPromptOrMessages) {
  TokenizeRequest prompt = parse_tokenize(R"({"prompt": "a", "return_token_strs": true})");
  EXPECT_EQ(text_to_tokenize(prompt, nullptr).text, "a");
  EXPECT_TRUE(prompt.add_special_tokens && prompt.return_token_strs);
  const ChatTemplate plain("{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}");
  TokenizeRequest messages = parse_tokenize(chat_body());
  EXPECT_EQ(text_to_tokenize(messages, &plain).text, "<user>hi</>");
  EXPECT_FALSE(messages.add_special_tokens);
  EXPECT_NE(refusal([&] { text_to_tokenize(messages, nullptr); }), "");
}

TEST(TokenizeRequest, RefusesOtherBodies) {
  for (const char* body : {"{}", R"({"prompt": 5})", R"({"prompt": "a", "messages": []})",
                           R"({"prompt": "a", "messages": [{"role": "user"}]})"}) {
    const std::string message = refusal([&] { parse_tokenize(body); });
    EXPECT_TRUE(message.starts_with("400 ")) << body << " -> " << message;
  }
  const auto detokenize = [](const char* body) {
    return refusal(
        [&] { parse_detokenize_request(parse_object_body(body), test_model(), test_api()); });
  };
  EXPECT_EQ(detokenize(R"({"tokens": [0, 8191]})"), "");
  EXPECT_EQ(detokenize(R"({"tokens": [8192]})"),
            "400 tokens[0]: tokens[0] is 8192, but must be at most 8191.");
  EXPECT_EQ(detokenize(R"({"tokens": [1], "model": "x"})"),
            "404 model: The model 'x' does not exist.");
}

TEST(TokenizeRequest, IdsThatTheTokenizerLacksHaveNoText) {
  EXPECT_EQ(detokenize_body({.tokens = {0, 8191, 3, 1}}, small_tokenizer()), R"({"prompt":"a b"})");
  EXPECT_EQ(detokenize_body({}, small_tokenizer()), R"({"prompt":""})");
}

}  // namespace
}  // namespace quire::server
