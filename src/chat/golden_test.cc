// Against transformers and Jinja2: tests/golden/chat/, made by scripts/make_chat_goldens.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "chat/interpreter.h"
#include "chat/json_value.h"
#include "chat/parser.h"
#include "quire/chat_input.h"
#include "quire/chat_template.h"
#include "quire/error.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

const std::string kFolder = QUIRE_SOURCE_DIR "/tests/golden/chat/";

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

ordered_json read_golden(const std::string& name) {
  return ordered_json::parse(read_text(kFolder + name));
}

// The fixed clock of the script: 2025-03-09 08:05:07.
std::chrono::local_seconds golden_now() {
  using namespace std::chrono;
  return local_days(year(2025) / March / 9) + hours(8) + minutes(5) + seconds(7);
}

struct Outcome {
  bool ok = false;
  std::string text;  // the rendered text, or the error's message
};

template <typename Render>
Outcome outcome_of(const Render& render) {
  try {
    return {true, render()};
  } catch (const Error& e) {
    return {false, e.what()};
  }
}

Outcome render_case(const ordered_json& golden, const ordered_json& test) {
  const std::string name = test["template"];
  ChatTemplate::SpecialTokens tokens;
  for (const auto& [key, value] : golden["special_tokens"][name].items()) tokens[key] = value;
  ChatInput input;
  input.messages = golden["chats"][test["chat"].get<std::string>()];
  if (test.contains("tools")) input.tools = test["tools"];
  if (test.contains("kwargs")) input.template_kwargs = test["kwargs"];
  input.add_generation_prompt = test.value("add_generation_prompt", true);
  input.now = golden_now();
  const std::string source = read_text(kFolder + "templates/" + name + ".jinja");
  return outcome_of([&] { return ChatTemplate(source, tokens).render(input); });
}

TEST(ChatGolden, ChatsEqualTransformers) {
  const ordered_json golden = read_golden("chats.json");
  for (const ordered_json& test : golden["cases"]) {
    const Outcome got = render_case(golden, test);
    ordered_json label = test;
    label.erase("text");
    SCOPED_TRACE(label.dump());
    EXPECT_EQ(got.ok, test.contains("text")) << got.text;
    if (test.contains("text")) {
      EXPECT_EQ(got.text, test["text"].get<std::string>());
    }
    if (test.contains("error")) {
      EXPECT_NE(got.text.find(test["error"].get<std::string>()), std::string::npos);
    }
  }
}

TEST(ChatGolden, SnippetsEqualJinja) {
  const ordered_json golden = read_golden("snippets.json");
  for (const ordered_json& test : golden["cases"]) {
    const std::string source = test[0];
    const Outcome got = outcome_of([&] {
      const chat_internal::Body body = chat_internal::parse_template(source, TemplateLimits());
      chat_internal::Runtime runtime{TemplateLimits()};
      chat_internal::Interpreter interpreter(runtime, golden_now());
      for (const auto& [name, value] : golden["context"].items()) {
        interpreter.set_variable(name, chat_internal::json_to_value(runtime, value, name));
      }
      return interpreter.render(body).take_text();
    });
    SCOPED_TRACE(source);
    EXPECT_EQ(got.ok, !test[1].is_null()) << got.text;
    if (!test[1].is_null()) {
      EXPECT_EQ(got.text, test[1].get<std::string>());
    }
  }
}

}  // namespace
}  // namespace quire
