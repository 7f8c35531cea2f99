#include "server/api/render_prompt.h"

#include <gtest/gtest.h>

#include <string>

#include "server/api/api_test_util.h"

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
  return render_prompt(ChatTemplate(chat_template), parse_chat(body)).text;
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

// What came from messages, between brackets.
std::string marked(const RenderedChat& rendered) {
  std::string out;
  size_t at = 0;
  for (const TextSpan& span : rendered.from_messages) {
    out += rendered.text.substr(at, span.begin - at) + "[" +
           rendered.text.substr(span.begin, span.end - span.begin) + "]";
    at = span.end;
  }
  return out + rendered.text.substr(at);
}

TEST(RenderPrompt, SaysWhatCameFromMessages) {
  const std::string body = R"({"messages": [{"role": "user", "content": "hi"},
      {"role": "assistant", "content": "Once  "}])";
  const auto render_marked = [&](const char* chat_template, const std::string& fields) {
    return marked(render_prompt(ChatTemplate(chat_template), parse_chat(body + fields + "}")));
  };
  constexpr const char* kContinue = R"(, "continue_final_message": true)";
  EXPECT_EQ(render_marked(kPlain, ""), "<user>[hi]</>\n<assistant>[Once  ]</>\n<assistant>");
  EXPECT_EQ(render_marked(kPlain, kContinue), "<user>[hi]</>\n<assistant>[Once  ]");
  EXPECT_EQ(render_marked(kTrimming, kContinue), "<user>[hi]</>\n<assistant>[Once]");
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

}  // namespace
}  // namespace quire::server
