// What output_parser.h promises, case by case. Every text is parsed at once and in pieces of 1 to 3
// bytes: all must give the same.
#include "parsers/output_parser.h"

#include <gtest/gtest.h>

#include <set>

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

void expect_parsed(const OutputParserConfig& config, std::string_view text,
                   const Parsed& expected) {
  for (const std::size_t piece : {0, 1, 2, 3}) {
    EXPECT_EQ(parse(config, text, piece), expected) << text << "\nin pieces of " << piece;
  }
}

void expect_content(const OutputParserConfig& config, std::string_view text) {
  expect_parsed(config, text, {std::string(text), "", {}});
}

std::string call_text(std::string_view name, std::string_view arguments) {
  return "<tool_call>\n{\"name\": \"" + std::string(name) +
         "\", \"arguments\": " + std::string(arguments) + "}\n</tool_call>";
}

TEST(OutputParser, GivesTextThroughWhereNothingIsToBeParsed) {
  const auto plain = config_for(ReasoningFormat::kNone, ToolFormat::kNone);
  expect_content(plain, "");
  expect_content(plain, "<think>\nx\n</think>\n\n" + call_text("f", "{}") + "\n");
}

TEST(OutputParser, TakesReasoningOutOfTheBeginning) {
  const auto config = config_for(ReasoningFormat::kQwen3, ToolFormat::kNone);
  expect_parsed(config, "<think>\nhm\n\nso\n</think>\n\nYes.\n", {"Yes.\n", "hm\n\nso", {}});
  expect_parsed(config, "\n <think>a</think>b", {"b", "a", {}});
  expect_parsed(config, "<think>\n\n</think>\n\nYes.", {"Yes.", "", {}});
  expect_parsed(config, "<think>\na </think", {"", "a </think", {}});
  expect_parsed(config, "<think>\na\n\n", {"", "a\n\n", {}});
  expect_parsed(config, "<think>\na<</</think>", {"", "a<</", {}});
  expect_parsed(config, "<think>a</think>\n<think>b</think>", {"<think>b</think>", "a", {}});
  expect_content(config, "No tags.");
  expect_content(config, "First <think>a</think>");
  expect_content(config, "\n\n <thin");
  expect_content(config, "<thinking>");
  expect_content(config, "a</think>b");
}

TEST(OutputParser, GoesOnWithReasoningThatThePromptOpened) {
  auto config = config_for(ReasoningFormat::kQwen3, ToolFormat::kNone);
  config.thinking = PromptThinking::kOpen;
  expect_parsed(config, "hm\n</think>\n\nYes.", {"Yes.", "hm", {}});
  expect_parsed(config, "\n\nhm", {"", "hm", {}});
  expect_parsed(config, "\n<think>\nhm</think>Yes.", {"Yes.", "hm", {}});
  expect_parsed(config, "</think>\n\nYes.", {"Yes.", "", {}});
  expect_parsed(config, "<", {"", "<", {}});
}

TEST(OutputParser, LeavesTagsAloneWhereThePromptClosedThinking) {
  auto config = config_for(ReasoningFormat::kQwen3, ToolFormat::kNone);
  config.thinking = PromptThinking::kClosed;
  expect_content(config, "<think>a</think>b");
}

TEST(OutputParser, TakesHermesCallsOut) {
  expect_parsed(hermes(), call_text("f", R"({"a": 1})"), {"", "", {{"f", R"({"a": 1})"}}});
  expect_parsed(hermes(), "Let me look.\n" + call_text("f", "{}") + "\n" + call_text("g", "{ }"),
                {"Let me look.", "", {{"f", "{}"}, {"g", "{ }"}}});
  expect_parsed(hermes(), call_text("f", "{}") + "\n\nDone.\n", {"Done.\n", "", {{"f", "{}"}}});
  expect_parsed(hermes(), "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
                {"", "", {{"f", "{}"}}});
  expect_parsed(qwen3(), "<think>\nhm\n</think>\n\n" + call_text("f", "{}"),
                {"", "hm", {{"f", "{}"}}});
  expect_parsed(qwen3(), "<think>\n" + call_text("f", "{}"), {"", call_text("f", "{}"), {}});
}

TEST(OutputParser, GivesArgumentsExactlyAsWritten) {
  for (const char* arguments : {
           R"({"s": "}\"{\\", "n": [1.50, -2e3, {"x": null}], "u": "\u00e9é"})",
           "{\n  \"a\" : 1,\n\n  \"b\":[ ]\n}",
           R"({"xml": "<tool_call></tool_call>", "t": "\n</tool_call>"})",
           R"({"a": 1, "a": 2})",
           R"({"a": 'x', "b": True,})",
       }) {
    expect_parsed(hermes(), call_text("f", arguments), {"", "", {{"f", arguments}}});
    expect_parsed(llama3(), "{\"name\": \"f\", \"parameters\": " + std::string(arguments) + "}",
                  {"", "", {{"f", arguments}}});
  }
}

TEST(OutputParser, TakesKeysInAnyOrderAndIgnoresOthers) {
  const Parsed expected{"", "", {{"f", R"({"a": {}})"}}};
  for (const char* object : {
           R"({"arguments": {"a": {}}, "name": "f"})",
           R"({"type": "function", "name": "f", "parameters": {"a": {}}})",
           R"({"name": "f", "id": [1, {"x": "}"}], "strict": true, "arguments": {"a": {}}})",
           R"({"name": "f", "arguments": {"a": {}}, "name": "g", "parameters": {"b": 1}})",
           R"( { "name" : "f" , "arguments" : {"a": {}} } )",
           R"({"n\"a": -1.5e3, "name": "\u0066", "arguments": {"a": {}}})",
       }) {
    expect_parsed(hermes(), "<tool_call>" + std::string(object) + "</tool_call>", expected);
    expect_parsed(llama3(), object, expected);
  }
}

TEST(OutputParser, GivesWhatOnlyBeginsLikeACallAsContent) {
  for (const char* text : {
           "The tag is <tool_call> and it closes with </tool_call>.",
           "<tool_call>",
           "a < b << c <tool <tool_cal",
           "<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
           "<tool_call>\n{\"name\": \"f\", \"arguments\": \"x\"}\n</tool_call>",
           "<tool_call>\n{\"name\": \"f\", \"arguments\": null}\n</tool_call>",
           "<tool_call>\n{\"name\": \"\", \"arguments\": {}}\n</tool_call>",
           "<tool_call>\n{\"name\": \"\\x\", \"arguments\": {}}\n</tool_call>",
           "<tool_call>\n{\"name\": 7, \"arguments\": {}}\n</tool_call>",
           "<tool_call>\n{\"name\": \"f",
           "<tool_call>\n{\"name\": \"f\nx\", \"arguments\": {}}",
           "<tool_call>\n{\"arguments\": {\"a\": 1}}\n</tool_call>",
           "<tool_call>\n{\"arguments\": {\"a\": <}, \"name\": \"f\"}\n</tool_call>",
           "<tool_call>\n{\"arguments\": {\"a\": 1\n</tool_call>",
           "<tool_call>\n{name: \"f\"}\n</tool_call>",
           "<tool_call>\n[{\"name\": \"f\", \"arguments\": {}}]\n</tool_call>",
           "<tool_call>\n{}\n</tool_call>",
           "\n\n<tool_call>\n\n",
           "</tool_call>\n",
       }) {
    expect_content(hermes(), text);
    expect_content(llama3(), text);
  }
}

TEST(OutputParser, FindsACallAfterOneThatWasNone) {
  expect_parsed(hermes(), "<tool_call>\n" + call_text("f", "{}"),
                {"<tool_call>", "", {{"f", "{}"}}});
  expect_parsed(hermes(), "<tool_call><tool_" + call_text("f", "{}"),
                {"<tool_call><tool_", "", {{"f", "{}"}}});
  expect_parsed(hermes(),
                "<tool_call>\n{\"arguments\": {\"a\": \n</tool_call>\n" + call_text("f", "{}"),
                {"<tool_call>\n{\"arguments\": {\"a\": \n</tool_call>", "", {{"f", "{}"}}});
}

TEST(OutputParser, KeepsWhatFollowsACall) {
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}";
  const std::vector<Call> calls{{"f", "{}"}};
  expect_parsed(hermes(), call, {"", "", calls});
  expect_parsed(hermes(), call + "\n </tool_ca", {"", "", calls});
  expect_parsed(hermes(), call + "}\n</tool_call>", {"}\n</tool_call>", "", calls});
  expect_parsed(hermes(), call + "\n</tool> x", {"</tool> x", "", calls});
  expect_parsed(hermes(), call + "  x", {"  x", "", calls});
  expect_parsed(hermes(), call + call, {"", "", {{"f", "{}"}, {"f", "{}"}}});
  expect_parsed(hermes(), call + "\n</tool" + call, {"</tool", "", {{"f", "{}"}, {"f", "{}"}}});
}

TEST(OutputParser, EndsCallsThatAreNotClosed) {
  const auto begun = [](std::string_view rest) {
    return "<tool_call>\n{\"name\": \"f\", \"arguments\": " + std::string(rest);
  };
  // Cut by a limit of tokens.
  expect_parsed(hermes(), begun("{\"a\": \"b"), {"", "", {{"f", "{\"a\": \"b"}}});
  expect_parsed(hermes(), begun("{}"), {"", "", {{"f", "{}"}}});
  expect_parsed(hermes(), begun("{\"a\": [1\n</tool"), {"", "", {{"f", "{\"a\": [1\n</tool"}}});
  // Closed by the tag alone.
  expect_parsed(hermes(), begun("{\"a\": 1}\n</tool_call>"), {"", "", {{"f", "{\"a\": 1}"}}});
  expect_parsed(hermes(), begun("{\"a\": 1\n</tool_call>\nx"), {"x", "", {{"f", "{\"a\": 1"}}});
  expect_parsed(hermes(), begun("{\"a\": 1</tool_call>x"), {"x", "", {{"f", "{\"a\": 1"}}});
  expect_parsed(hermes(), begun("{\"a\": \"b}}\n</tool_call>") + call_text("g", "{}"),
                {"", "", {{"f", "{\"a\": \"b}}"}, {"g", "{}"}}});
  expect_parsed(hermes(), begun("{\"a\": \"\\\n\n</tool_call>"),
                {"", "", {{"f", "{\"a\": \"\\\n"}}});
  // Only a tag at the beginning of a line ends a string.
  expect_parsed(hermes(), begun("{\"a\": \"\n<</tool_call>\"}}\n</tool_call>"),
                {"", "", {{"f", "{\"a\": \"\n<</tool_call>\"}"}}});
}

TEST(OutputParser, TakesLlamaCallsOut) {
  const std::string f = R"({"name": "f", "parameters": {"a": "1"}})";
  const std::string g = R"({"name": "g", "parameters": {}})";
  const Call call_f{"f", R"({"a": "1"})"};
  const Call call_g{"g", "{}"};
  expect_parsed(llama3(), f, {"", "", {call_f}});
  expect_parsed(llama3(), "\n\n" + f + "\n", {"", "", {call_f}});
  expect_parsed(llama3(), "<|python_tag|>" + f, {"", "", {call_f}});
  expect_parsed(llama3(), f + "; " + g, {"", "", {call_f, call_g}});
  expect_parsed(llama3(), "<|python_tag|>" + f + ";" + g + ";\n" + f + "; ",
                {"", "", {call_f, call_g, call_f}});
  expect_parsed(llama3(), f + "\n" + g, {"", "", {call_f, call_g}});
  expect_parsed(llama3(), "I look.\n<|python_tag|>" + f, {"I look.", "", {call_f}});
  expect_parsed(llama3(), f + "\nand so", {"and so", "", {call_f}});
  expect_parsed(llama3(), f + "; {\"name\": 3}", {"; {\"name\": 3}", "", {call_f}});
  expect_parsed(llama3(), f + ";; x", {";; x", "", {call_f}});
  expect_parsed(llama3(), f + "; <|python_tag|>" + g, {"; ", "", {call_f, call_g}});
}

TEST(OutputParser, FindsLlamaCallsOnlyWhereTheyMayBegin) {
  expect_content(llama3(), R"(Here: {"name": "f", "parameters": {}})");
  expect_content(llama3(), R"({"answer": 42})");
  expect_content(llama3(), R"({"name": "Ada", "born": 1815})");
  expect_content(llama3(), "<|python_tag|>search.call(query=\"x\")");
  expect_content(llama3(), "<|python_ta");
  expect_content(llama3(), "  \n{ ");
  expect_content(llama3(), "{}");
}

TEST(OutputParser, StopsAfterTheFirstCallWhereOnlyOneIsAllowed) {
  for (auto config : {hermes(), llama3()}) {
    config.parallel_tool_calls = false;
    const bool is_hermes = config.tools == ToolFormat::kHermes;
    const std::string call =
        is_hermes ? call_text("f", "{}") : R"({"name": "f", "parameters": {}})";
    expect_parsed(config, call + "; \n" + call + " x", {"", "", {{"f", "{}"}}});
    const auto parser = make_output_parser(config);
    parser->push(call.substr(0, call.find("{}")));
    EXPECT_FALSE(parser->done());
    parser->push(call.substr(call.find("{}")));
    EXPECT_TRUE(parser->done());
  }
}

TEST(OutputParser, GivesArgumentsAsSoonAsTheyAreCertain) {
  const auto parser = make_output_parser(hermes());
  EXPECT_EQ(parser->push("Hi <").content, "Hi ");
  EXPECT_EQ(parser->push("b>").content, "<b>");
  EXPECT_TRUE(parser->push("<tool_call>\n{\"name\": \"get\", \"argu").empty());
  EXPECT_FALSE(parser->has_tool_calls());
  const ParsedDelta first = parser->push("ments\": {\"a");
  ASSERT_EQ(first.tool_calls.size(), 1u);
  EXPECT_EQ(first.tool_calls[0].name, "get");
  EXPECT_EQ(first.tool_calls[0].arguments, "{\"a");
  EXPECT_EQ(parser->push("\": 1").tool_calls.at(0).arguments, "\": 1");
  EXPECT_EQ(parser->push("}}\n</tool").tool_calls.at(0).arguments, "}");
  EXPECT_TRUE(parser->push("_call>").empty());
  EXPECT_TRUE(parser->finish().empty());
}

TEST(OutputParser, HoldsBackNoMoreThanItSays) {
  const std::string long_value(kMaxHeldBytes, 'x');
  for (const std::string& text : {
           "<tool_call>{\"x\": \"" + long_value,
           "<tool_call>{\"arguments\": {\"x\": \"" + long_value,
           "<tool_call>{\"name\": \"" + long_value,
           "<tool_call>" + std::string(kMaxHeldBytes, ' '),
       }) {
    const auto parser = make_output_parser(hermes());
    EXPECT_EQ(parser->push(text).content, text);
  }
  const auto parser = make_output_parser(qwen3());
  EXPECT_GE(parser->push(std::string(2 * kMaxHeldBytes, ' ')).content.size(), kMaxHeldBytes);
}

TEST(OutputParser, IdsRepeatWithTheirSeedAndAreOpenAis) {
  ToolCallIds ids = tool_call_ids(1);
  ToolCallIds same = tool_call_ids(1);
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = ids();
    EXPECT_EQ(id, same());
    ASSERT_EQ(id.size(), 29u);
    EXPECT_EQ(id.substr(0, 5), "call_");
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef", 5), std::string::npos);
    EXPECT_TRUE(seen.insert(id).second);
  }
  EXPECT_NE(tool_call_ids(2)(), tool_call_ids(1)());
}

}  // namespace
}  // namespace quire
