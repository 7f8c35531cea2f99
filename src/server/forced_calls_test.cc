#include "server/forced_calls.h"

#include <gtest/gtest.h>

#include <string>

#include "server/api/api_test_util.h"

namespace quire::server {
namespace {

constexpr const char* kTwoTools = R"("tools": [
  {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}},
  {"type": "function", "function": {"name": "now"}}])";

// What is said about an answer of `text`, which goes on where the forced prefix ends.
std::string said_of(const std::string& choice, const std::string& text, bool cut = false) {
  const GenerationRequest request =
      parse_chat(R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": )" + choice +
                 ", " + kTwoTools + "}");
  ForcedCalls calls(request);
  OutputParserConfig config;
  config.tools = ToolFormat::kHermes;
  config.forced_prefix = forced_prefix(config.tools, request.tool_choice, request.tool_name);
  config.next_tool_call_id = tool_call_ids(1);
  const auto parser = calls.watch(make_output_parser(config));
  for (const char c : text) parser->push(std::string_view(&c, 1));
  parser->finish();
  if (cut) calls.cut(0);
  const auto error = calls.error();
  if (!error) return "";
  EXPECT_EQ(error->status, 422);
  EXPECT_EQ(error->code, "invalid_tool_call");
  return error->what();
}

constexpr const char* kAnyTool = R"("required")";
constexpr const char* kWeatherTool = R"({"type": "function", "function": {"name": "weather"}})";

TEST(ForcedCalls, TakesWhatWasAskedFor) {
  EXPECT_EQ(said_of(kAnyTool, R"(weather", "arguments": {"city": "Rome"}}</tool_call>)"), "");
  EXPECT_EQ(said_of(kAnyTool, R"(now", "arguments": {}}</tool_call>)"), "");
  EXPECT_EQ(said_of(kWeatherTool, R"({"city": "Rome", "more": 1}}</tool_call>)"), "");
}

TEST(ForcedCalls, RefusesNamesOfNoTool) {
  EXPECT_NE(said_of(kAnyTool, R"(I'm sorry, I don't know that word.)").find("I'm sorry"),
            std::string::npos);
  EXPECT_NE(said_of(kAnyTool, R"(weathers", "arguments": {"city": "Rome"}}</tool_call>)")
                .find("but must call one of tools"),
            std::string::npos);
}

TEST(ForcedCalls, RefusesArgumentsThatTheSchemaRefuses) {
  EXPECT_NE(said_of(kWeatherTool, "{}}</tool_call>").find("arguments.city is missing."),
            std::string::npos);
  EXPECT_NE(said_of(kWeatherTool, "I don't know.").find("arguments"), std::string::npos);
  EXPECT_NE(said_of(kWeatherTool, R"({"city": 5}}</tool_call>)").find("must be a string"),
            std::string::npos);
  EXPECT_NE(said_of(kWeatherTool, R"({"city": "Ro)").find("must be a JSON object"),
            std::string::npos);
}

TEST(ForcedCalls, SaysNothingOfWhatWasCutShort) {
  EXPECT_EQ(said_of(kWeatherTool, R"({"city": "Ro)", /*cut=*/true), "");
  EXPECT_EQ(said_of(kAnyTool, "wea", /*cut=*/true), "");
}

}  // namespace
}  // namespace quire::server
