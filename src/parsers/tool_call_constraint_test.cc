#include "parsers/tool_call_constraint.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parsers/parser_test_util.h"

namespace quire {
namespace {

using parser_test::Call;
using parser_test::config_for;
using parser_test::parse;
using parser_test::Parsed;

const std::vector<CallableFunction> kFunctions = {{"weather", R"({"type":"object"})"},
                                                  {"say \"x\"", R"({"maxProperties":0})"}};

TEST(ToolCallConstraint, CallsAreWrittenAsTheParserReadsThem) {
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kLlama3Json}) {
    const StructuredOutput output = forced_calls(format, kFunctions, /*parallel=*/true);
    ASSERT_EQ(output.tags.size(), 2u);
    std::string answer;
    for (const StructuralTag& tag : output.tags) {
      if (!answer.empty()) answer += output.separator;
      answer += tag.begin + "{}" + tag.end;
    }
    EXPECT_EQ(parse(config_for(ReasoningFormat::kNone, format), answer, 1),
              (Parsed{"", "", {Call{"weather", "{}"}, Call{"say \"x\"", "{}"}}}))
        << answer;
    EXPECT_EQ(output.tags[1].json_schema, kFunctions[1].arguments_schema);
  }
}

TEST(ToolCallConstraint, ForcedCallsAreAllThereIs) {
  const StructuredOutput output = forced_calls(ToolFormat::kHermes, kFunctions, true);
  EXPECT_EQ(output.kind, StructuredOutput::Kind::kTags);
  EXPECT_TRUE(output.triggers.empty());
  EXPECT_EQ(output.min_tags, 1u);
  EXPECT_EQ(output.max_tags, UINT32_MAX);
  EXPECT_EQ(forced_calls(ToolFormat::kHermes, kFunctions, false).max_tags, 1u);
}

TEST(ToolCallConstraint, OptionalCallsBeginWithTheirTrigger) {
  const StructuredOutput output = optional_calls(ToolFormat::kHermes, kFunctions, false);
  ASSERT_EQ(output.triggers.size(), 1u);
  for (const StructuralTag& tag : output.tags) {
    EXPECT_TRUE(tag.begin.starts_with(output.triggers[0]));
  }
  EXPECT_EQ(output.min_tags, 0u);
  EXPECT_EQ(output.max_tags, 1u);
}

TEST(ToolCallConstraint, OptionalCallsOfLlamaBeginWithTheirNames) {
  std::vector<CallableFunction> functions = kFunctions;
  functions.push_back({"weather", R"({"minProperties":1})"});
  const StructuredOutput output = optional_calls(ToolFormat::kLlama3Json, functions, true);
  EXPECT_EQ(output.triggers,
            (std::vector<std::string>{R"({"name": "weather")", R"({"name": "say \"x\"")"}));
  ASSERT_EQ(output.tags.size(), 3u);
  EXPECT_EQ(output.tags[0].begin, R"({"name": "weather", "parameters": )");
  EXPECT_EQ(output.tags[0].end, "}");
  EXPECT_EQ(output.min_tags, 0u);
}

// As many as a request may have, with names of any length.
TEST(ToolCallConstraint, ManyFunctionsOfLlamaShareATrigger) {
  std::vector<CallableFunction> functions;
  for (int i = 0; i < 1024; ++i)
    functions.push_back({std::string(120, 'f') + std::to_string(i), "{}"});
  const StructuredOutput output = optional_calls(ToolFormat::kLlama3Json, functions, false);
  EXPECT_EQ(output.triggers, std::vector<std::string>{R"({"name": ")"});
  EXPECT_EQ(output.tags.size(), functions.size());
  for (const StructuralTag& tag : output.tags) {
    EXPECT_TRUE(tag.begin.starts_with(output.triggers[0]));
  }
  EXPECT_EQ(output.max_tags, UINT32_MAX) << "text goes on behind a call that it quotes";
}

TEST(ToolCallConstraint, OneCallOrJson) {
  const StructuredOutput output = call_or_json(ToolFormat::kHermes, kFunctions, "{}");
  EXPECT_EQ(output.min_tags, 1u);
  EXPECT_EQ(output.max_tags, 1u);
  EXPECT_EQ(output.tags.back(), (StructuralTag{"", "{}", ""}));
}

}  // namespace
}  // namespace quire
