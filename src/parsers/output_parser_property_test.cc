// Properties of the output parser over random answers made of markers, pieces of markers, calls and
// broken calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "base/sanitized_test_util.h"
#include "parsers/output_parser.h"
#include "parsers/parser_test_util.h"

namespace quire {
namespace {

using parser_test::Call;
using parser_test::config_for;
using parser_test::hermes;
using parser_test::llama3;
using parser_test::parse;
using parser_test::Parsed;
using parser_test::qwen3;

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t bound) {
  return random() % bound;
}

const std::vector<std::string>& fragments() {
  static const std::vector<std::string> all = {
      "<think>",
      "</think>",
      "<tool_call>",
      "</tool_call>",
      "<|python_tag|>",
      "\n",
      "\n\n",
      " ",
      "<",
      "</",
      ">",
      "{",
      "}",
      "[",
      "]",
      "\"",
      "\\",
      ":",
      ",",
      ";",
      "; ",
      "x",
      "é",
      "12",
      "null",
      "{\"name\": \"f\"",
      "{\"name\": \"",
      ", \"arguments\": {",
      ", \"parameters\": {\"a\": \"b\"}}",
      "{\"arguments\": {\"a\": [1, {}]}, \"name\": \"g\"}",
      "\"x\": {}, ",
      "}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"",
      "{\"name\": \"h\", \"parameters\": {}}",
      "<tool_call>\n{\"name\": \"f\", \"arguments\": "};
  return all;
}

// A text that can be told apart, and that no JSON outside of arguments can hold.
std::string token(int number) {
  return "\x01" + std::to_string(number) + "\x02";
}

std::string random_answer(Random& random, int& tokens) {
  std::string text;
  for (std::size_t i = below(random, 16); i > 0; --i) {
    if (below(random, 5) == 0) {
      text += token(tokens++);
      continue;
    }
    std::string fragment = fragments()[below(random, fragments().size())];
    if (below(random, 6) == 0) fragment.resize(below(random, fragment.size() + 1));
    text += fragment;
  }
  return text;
}

OutputParserConfig random_config(Random& random) {
  auto config = config_for(below(random, 2) ? ReasoningFormat::kQwen3 : ReasoningFormat::kNone,
                           static_cast<ToolFormat>(below(random, 3)));
  config.thinking = static_cast<PromptThinking>(below(random, 3));
  return config;
}

Parsed parse_split_at_random(const OutputParserConfig& config, std::string_view text,
                             Random& random) {
  const auto parser = make_output_parser(config);
  Parsed parsed;
  while (!text.empty()) {
    const std::size_t length = below(random, std::min<std::size_t>(text.size(), 20)) + 1;
    parsed.add(parser->push(text.substr(0, length)));
    if (below(random, 8) == 0) parsed.add(parser->push({}));
    text.remove_prefix(length);
  }
  parsed.add(parser->finish());
  return parsed;
}

bool is_subsequence(std::string_view part, std::string_view whole) {
  for (const char c : part) {
    const std::size_t at = whole.find(c);
    if (at == whole.npos) return false;
    whole.remove_prefix(at + 1);
  }
  return true;
}

TEST(OutputParserProperty, HowTheTextIsCutChangesNothing) {
  Random random(1);
  for (int round = 0; round < 20000; ++round) {
    int tokens = 0;
    const std::string text = random_answer(random, tokens);
    auto config = random_config(random);
    config.parallel_tool_calls = below(random, 2) == 0;
    const Parsed whole = parse(config, text);
    ASSERT_EQ(parse(config, text, 1), whole) << text;
    ASSERT_EQ(parse_split_at_random(config, text, random), whole) << text;
  }
}

TEST(OutputParserProperty, LosesNothingAndInventsNothing) {
  Random random(2);
  int with_calls = 0;
  for (int round = 0; round < 20000; ++round) {
    int tokens = 0;
    const std::string text = random_answer(random, tokens);
    const auto config = random_config(random);
    const Parsed parsed = parse(config, text);
    std::string all = parsed.content + parsed.reasoning;
    std::size_t from = 0;
    for (const Call& call : parsed.calls) {
      const std::size_t at = text.find(call.arguments, from);
      ASSERT_NE(at, std::string::npos) << text << "\narguments not as written: " << call;
      from = at + call.arguments.size();
      all += call.arguments;
    }
    for (int i = 0; i < tokens; ++i) {
      const std::size_t at = all.find(token(i));
      ASSERT_NE(at, std::string::npos) << text << "\nlost " << i << ": " << parsed;
      ASSERT_EQ(all.find(token(i), at + 1), std::string::npos) << text;
    }
    ASSERT_TRUE(is_subsequence(parsed.content, text)) << text;
    ASSERT_TRUE(is_subsequence(parsed.reasoning, text)) << text;
    // Without tags and calls there is nothing to drop.
    const bool untagged =
        text.find("think>") == text.npos && config.thinking != PromptThinking::kOpen;
    if (parsed.calls.empty() && untagged) {
      ASSERT_EQ(parsed.content, text);
    }
    with_calls += !parsed.calls.empty();
  }
  EXPECT_GT(with_calls, 1000);  // the answers do reach calls
}

nlohmann::ordered_json random_json(Random& random, int depth) {
  static const std::vector<std::string> strings = {
      "",  "a",  "\"",  "\\", "\n</tool_call>", "<tool_call>", "}", "{\"name\": \"",
      "é", "; ", "\x01"};
  switch (below(random, depth > 0 ? 7 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return below(random, 2) == 0;
    case 2:
      return static_cast<std::int64_t>(random()) - (1LL << 31);
    case 3:
      return 0.5 * static_cast<double>(below(random, 1000));
    case 4:
      return strings[below(random, strings.size())];
    case 5: {
      auto array = nlohmann::ordered_json::array();
      for (std::size_t i = below(random, 4); i > 0; --i)
        array.push_back(random_json(random, depth - 1));
      return array;
    }
    default: {
      auto object = nlohmann::ordered_json::object();
      for (std::size_t i = below(random, 4); i > 0; --i) {
        object[strings[below(random, strings.size())]] = random_json(random, depth - 1);
      }
      return object;
    }
  }
}

nlohmann::ordered_json random_object(Random& random) {
  auto object = nlohmann::ordered_json::object();
  for (std::size_t i = below(random, 4); i > 0; --i) {
    object["k" + std::to_string(i)] = random_json(random, 4);
  }
  return object;
}

TEST(OutputParserProperty, CallsWrittenWellComeBackExactly) {
  Random random(3);
  for (int round = 0; round < 3000; ++round) {
    const bool is_hermes = below(random, 2) == 0;
    Parsed expected;
    std::string text;
    if (is_hermes && below(random, 2) == 0) text = expected.content = "Let me look.";
    for (std::size_t i = below(random, 4) + 1; i > 0; --i) {
      const std::string name = "f" + std::to_string(i);
      const std::string arguments =
          random_object(random).dump(static_cast<int>(below(random, 4)) - 1, ' ', below(random, 2));
      expected.calls.push_back({name, arguments});
      const std::string object = "{\"name\": \"" + name + "\", \"" +
                                 (is_hermes ? "arguments" : "parameters") + "\": " + arguments +
                                 "}";
      if (!text.empty()) text += is_hermes ? "\n" : "; ";
      text += is_hermes ? "<tool_call>\n" + object + "\n</tool_call>" : object;
    }
    const auto config = is_hermes ? qwen3() : llama3();
    ASSERT_EQ(parse(config, text), expected) << text;
    ASSERT_EQ(parse_split_at_random(config, text, random), expected) << text;
  }
}

// Much of what invites to read again, byte by byte: quadratic work would not end.
TEST(OutputParserProperty, WorkIsLinearInTheLengthOfTheAnswer) {
  constexpr std::size_t kBytes = kSanitized ? 1 << 16 : 1 << 18;
  for (const std::string unit :
       {"a", "\n", " ", "<", "{", "[", "\"", "\\", "<tool_call>", "<tool_call>{", "; ",
        "<|python_tag|>{", "<tool_call>{\"name\": \"f\", \"arguments\": {",
        "{\"name\": \"f\", \"parameters\": {}};", "<tool_call>{\"arguments\": {\"a\": \"", "\n<",
        "<think>", "<tool_call>{\"name\": \"f\", \"x\": \""}) {
    std::string text;
    while (text.size() < kBytes) text += unit;
    for (const auto& config : {hermes(), llama3(), qwen3()}) {
      const auto parser = make_output_parser(config);
      std::size_t given = 0;
      const auto count = [&given](const ParsedDelta& delta) {
        given += delta.content.size() + delta.reasoning.size();
        for (const ToolCallDelta& call : delta.tool_calls) given += call.arguments.size();
      };
      for (const char& c : text) count(parser->push({&c, 1}));
      count(parser->finish());
      EXPECT_GT(given, 0u) << unit;
      EXPECT_LE(given, text.size()) << unit;
    }
  }
}

}  // namespace
}  // namespace quire
