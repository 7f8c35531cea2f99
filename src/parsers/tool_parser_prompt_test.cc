// The prompt's end and the parser that goes on from it, with the templates of real models: what a
// template writes for a tool call is what the parser reads back.
#include "parsers/tool_parser_prompt.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "parsers/output_parser.h"
#include "parsers/parser_test_util.h"
#include "quire/chat_input.h"
#include "quire/chat_template.h"

namespace quire {
namespace {

using nlohmann::ordered_json;
using parser_test::Call;
using parser_test::config_for;
using parser_test::parse;
using parser_test::Parsed;
using parser_test::template_source;

constexpr auto kQwen3 = ReasoningFormat::kQwen3;

ordered_json tools() {
  return ordered_json::parse(R"([{"type": "function", "function": {"name": "get_weather",
      "description": "<tool_call></tool_call><think>", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}}}}}])");
}

ordered_json chat() {
  return ordered_json::parse(R"([{"role": "user", "content": "Weather? <think> about it"}])");
}

ordered_json call_message(const std::vector<Call>& calls, std::string_view content,
                          std::string_view reasoning) {
  ordered_json message = {{"role", "assistant"}, {"content", content}};
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  message["tool_calls"] = ordered_json::array();
  for (const Call& call : calls) {
    const ordered_json function = {{"name", call.name},
                                   {"arguments", ordered_json::parse(call.arguments)}};
    message["tool_calls"].push_back({{"type", "function"}, {"function", function}});
  }
  return message;
}

std::string render(const std::string& name, const ordered_json& messages, bool generation_prompt,
                   const ordered_json& kwargs = ordered_json::object()) {
  const ChatTemplate chat_template(template_source(name), {{"bos_token", "<|begin_of_text|>"}});
  ChatInput input;
  input.messages = messages;
  input.tools = tools();
  input.add_generation_prompt = generation_prompt;
  input.template_kwargs = kwargs;
  input.template_kwargs["date_string"] = "26 Jul 2024";
  return chat_template.render(input);
}

// What the template writes after the prompt for an assistant's message, without the end of its
// turn.
std::string rendered_answer(const std::string& name, const ordered_json& message) {
  const std::string prompt = render(name, chat(), true);
  ordered_json messages = chat();
  messages.push_back(message);
  std::string text = render(name, messages, false);
  EXPECT_TRUE(text.starts_with(prompt)) << text;
  text.erase(0, prompt.size());
  for (const std::string_view end : {"<|im_end|>\n", "<|eot_id|>"}) {
    if (text.ends_with(end)) text.resize(text.size() - end.size());
  }
  return text;
}

const std::vector<Call>& calls() {
  static const std::vector<Call> all = {
      {"get_weather", R"({"city": "Zürich \"}\" <tool_call>", "days": [1, 2.5, {"x": null}]})"},
      {"stop", "{}"}};
  return all;
}

TEST(ToolTemplates, ReadBackWhatQwenWrites) {
  const std::string source = template_source("qwen2_5");
  const auto plain = config_for(ReasoningFormat::kNone, detect_formats(source).tools);
  const std::string qwen2 = rendered_answer("qwen2_5", call_message(calls(), "Let me see.", ""));
  EXPECT_EQ(parse(plain, qwen2), (Parsed{"Let me see.", "", calls()})) << qwen2;
  const OutputFormats formats = detect_formats(template_source("qwen3"));
  const auto thinking = config_for(formats.reasoning, formats.tools);
  for (const std::string content : {"", "Let me see."}) {
    const std::string text =
        rendered_answer("qwen3", call_message(calls(), content, "They ask\n\nfor weather."));
    EXPECT_EQ(parse(thinking, text, 1), (Parsed{content, "They ask\n\nfor weather.", calls()}))
        << text;
  }
}

TEST(ToolTemplates, ReadBackWhatLlamaWrites) {
  const auto config =
      config_for(ReasoningFormat::kNone, detect_formats(template_source("llama3.2")).tools);
  for (const Call& call : calls()) {
    const std::string text = rendered_answer("llama3.2", call_message({call}, "", ""));
    EXPECT_EQ(parse(config, text, 1), (Parsed{"", "", {call}})) << text;
  }
}

TEST(PromptThinking, IsReadOffTheLastTurnOfQwen3) {
  const ordered_json no_thinking = {{"enable_thinking", false}};
  EXPECT_EQ(thinking_at_end_of(render("qwen3", chat(), true), kQwen3), PromptThinking::kNotStarted);
  EXPECT_EQ(thinking_at_end_of(render("qwen3", chat(), true, no_thinking), kQwen3),
            PromptThinking::kClosed);
  EXPECT_EQ(thinking_at_end_of(render("qwen3", chat(), false), kQwen3),
            PromptThinking::kNotStarted);
  EXPECT_EQ(thinking_at_end_of(render("qwen3", chat(), true), ReasoningFormat::kNone),
            PromptThinking::kClosed);
}

TEST(PromptThinking, IsClosedAsTheTemplateClosesIt) {
  const std::string turn = "<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n";
  const struct {
    std::string tail;
    PromptThinking thinking;
    std::string closer;
  } cases[] = {
      {turn, PromptThinking::kNotStarted, "<think>\n\n</think>\n\n"},
      {turn + "<think>\n", PromptThinking::kOpen, "\n</think>\n\n"},
      {turn + "<think>", PromptThinking::kOpen, "\n\n</think>\n\n"},
      {turn + "<think>\nhm", PromptThinking::kOpen, "\n</think>\n\n"},
      {turn + "<think>\nhm\n", PromptThinking::kOpen, "</think>\n\n"},
      {turn + "<think>\n\n</think>\n\n", PromptThinking::kClosed, ""},
      {turn + "<think>\nhm\n</think>\n\nSo", PromptThinking::kClosed, ""},
      {turn + "So", PromptThinking::kClosed, ""},
      {turn + "So<|im_end|>\n", PromptThinking::kNotStarted, "<think>\n\n</think>\n\n"},
      {"<|im_start|>user\n<think>", PromptThinking::kNotStarted, "<think>\n\n</think>\n\n"},
      {"<|Assistant|><think>\n", PromptThinking::kOpen, "\n</think>\n\n"},
      {"<|Assistant|><think>\n\n</think>", PromptThinking::kClosed, ""},
      {"", PromptThinking::kNotStarted, "<think>\n\n</think>\n\n"},
  };
  for (const auto& [tail, thinking, closer] : cases) {
    EXPECT_EQ(thinking_at_end_of(tail, kQwen3), thinking) << tail;
    EXPECT_EQ(thinking_closer(kQwen3, tail), closer) << tail;
    EXPECT_EQ(thinking_closer(ReasoningFormat::kNone, tail), "") << tail;
    const bool may_think = thinking == PromptThinking::kNotStarted;
    EXPECT_EQ(thinking_opener(kQwen3, tail), may_think ? "<think>\n" : "") << tail;
    EXPECT_EQ(thinking_opener(ReasoningFormat::kNone, tail), "") << tail;
  }
}

}  // namespace
}  // namespace quire
