#include "server/render_prompt.h"

#include <gtest/gtest.h>

#include <string>

#include "server/api_test_util.h"
#include "server/tokenize_request.h"

namespace quire::server {
namespace {

constexpr const char* kPlain =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
constexpr const char* kTrimming =
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>\n{% endfor %}";
constexpr const char* kHiding = "{% for m in messages %}<{{ m.role }}>{% endfor %}";
constexpr const char* kRefusing = "{{ raise_exception('Roles must alternate.') }}";

std::string render(const char* chat_template, const std::string& fields,
                   const std::string& answer = "Once upon") {
  const std::string body = R"({"messages": [{"role": "user", "content": "tell Once upon"},
      {"role": "assistant", "content": ")" +
                           answer + R"("}])" + fields + "}";
  return render_prompt(ChatTemplate(chat_template), parse_chat(body));
}

TEST(RenderPrompt, AddsTheHeaderOfTheAnswer) {
  EXPECT_EQ(render(kPlain, ""), "<user>tell Once upon</>\n<assistant>Once upon</>\n<assistant>");
  EXPECT_EQ(render(kPlain, R"(, "add_generation_prompt": false)"),
            "<user>tell Once upon</>\n<assistant>Once upon</>\n");
}

// As transformers' apply_chat_template(continue_final_message=True) renders the same.
TEST(RenderPrompt, EndsWithTheFinalMessage) {
  constexpr const char* kContinue = R"(, "continue_final_message": true)";
  EXPECT_EQ(render(kPlain, kContinue), "<user>tell Once upon</>\n<assistant>Once upon");
  EXPECT_EQ(render(kPlain, kContinue, "Once upon "),
            "<user>tell Once upon</>\n<assistant>Once upon ");
  EXPECT_EQ(render(kTrimming, kContinue, "Once upon "),
            "<user>tell Once upon</>\n<assistant>Once upon");
  EXPECT_EQ(render(kTrimming, kContinue, "  Once"), "<user>tell Once upon</>\n<assistant>Once");
  EXPECT_EQ(render(kPlain, kContinue, ""), "<user>tell Once upon</>\n<assistant>");
}

TEST(RenderPrompt, RefusesAFinalMessageThatIsNotShown) {
  EXPECT_EQ(refusal([] { render(kHiding, R"(, "continue_final_message": true)"); }),
            "400 continue_final_message: continue_final_message is true, but the chat template "
            "does not show the last message.");
}

TEST(RenderPrompt, WhatTheTemplateRefusesIsTheClients) {
  const std::string message = refusal([] { render(kRefusing, ""); });
  EXPECT_TRUE(message.starts_with("400 messages: ")) << message;
  EXPECT_NE(message.find("Roles must alternate."), std::string::npos) << message;
}

TokenizeRequest parse_tokenize(const std::string& body) {
  return parse_tokenize_request(parse_object_body(body), test_model(), test_api());
}

TEST(TokenizeRequest, OfAPromptOrMessages) {
  const TokenizeRequest prompt = parse_tokenize(R"({"prompt": "a", "return_token_strs": true})");
  EXPECT_EQ(text_to_tokenize(prompt, nullptr), "a");
  EXPECT_TRUE(prompt.add_special_tokens && prompt.return_token_strs);
  const ChatTemplate plain(kPlain);
  const TokenizeRequest messages = parse_tokenize(chat_body());
  EXPECT_EQ(text_to_tokenize(messages, &plain), "<user>hi</>\n<assistant>");
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

}  // namespace
}  // namespace quire::server
