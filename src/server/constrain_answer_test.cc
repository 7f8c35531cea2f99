#include "server/constrain_answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "server/api/api_test_util.h"

namespace quire::server {
namespace {

using Kind = StructuredOutput::Kind;

// Compiles schemas, those of tags too, and takes anything else.
std::shared_ptr<const void> compile_alone(const StructuredOutput& constraint) {
  if (constraint.kind == Kind::kJsonSchema) grammar::compile_json_schema(constraint.text);
  if (constraint.kind == Kind::kRegex) grammar::compile_regex(constraint.text);
  for (const StructuralTag& tag : constraint.tags) {
    grammar::compile_json_schema(tag.json_schema);
  }
  return nullptr;
}

// The chat's constraint.
std::optional<StructuredOutput> constrained(const std::string& fields,
                                            ToolFormat format = ToolFormat::kHermes,
                                            std::vector<std::string>* warnings = nullptr) {
  GenerationRequest request = parse_chat(chat_body(fields));
  constrain_answer(request, format, "</think>", compile_alone);
  if (warnings != nullptr) *warnings = request.warnings;
  return request.sampling.structured_output;
}

std::string refused(const std::string& fields, ToolFormat format = ToolFormat::kHermes) {
  return refusal([&] { constrained(fields, format); });
}

// Fields of two functions, the first with these members besides its name.
std::string tools(const std::string& members, const std::string& choice = "") {
  return R"("tools": [{"type": "function", "function": {"name": "f", )" + members +
         R"(}}, {"type": "function", "function": {"name": "g"}}])" +
         (choice.empty() ? "" : R"(, "tool_choice": )" + choice);
}

constexpr const char* kRequired = R"("required")";
constexpr const char* kNamed = R"({"type": "function", "function": {"name": "f"}})";
constexpr const char* kOdd = R"("parameters": {"$ref": "other.json"})";

TEST(ConstrainAnswer, NothingWhereNothingIsAsked) {
  EXPECT_EQ(constrained(""), std::nullopt);
  EXPECT_EQ(constrained(tools(R"("parameters": {})", R"("none")")), std::nullopt);
  EXPECT_EQ(constrained(tools(R"("parameters": {})"), ToolFormat::kNone), std::nullopt);
}

TEST(ConstrainAnswer, BeginsBehindReasoning) {
  EXPECT_EQ(constrained(R"("response_format": {"type": "json_object"})")->begins_after, "</think>");
  EXPECT_EQ(constrained(tools(R"("parameters": {})"))->begins_after, "</think>");
}

TEST(ConstrainAnswer, NamesTheFieldThatCannotBeEnforced) {
  EXPECT_TRUE(refused(R"("response_format": {"type": "json_schema", "json_schema": {"name": "x",
                      "schema": {"properties": {"a": {"type": "text"}}}}})")
                  .starts_with("400 response_format.json_schema.schema: "
                               "response_format.json_schema.schema cannot be enforced: "
                               "#/properties/a/type"));
  EXPECT_TRUE(refused(R"("guided_regex": "(")")
                  .starts_with("400 guided_regex: guided_regex cannot be enforced: "));
}

TEST(ConstrainAnswer, CallsFollowTheirSchemas) {
  const std::string members = R"("parameters": {"properties": {"a": {"type": "integer"}}})";
  for (const auto& [choice, min_tags, num_tags] :
       std::vector<std::tuple<std::string, uint32_t, size_t>>{
           {"", 0, 2}, {kRequired, 1, 2}, {kNamed, 1, 1}}) {
    const auto output = constrained(tools(members, choice));
    EXPECT_EQ(output->kind, Kind::kTags);
    EXPECT_EQ(output->min_tags, min_tags);
    EXPECT_EQ(output->triggers.empty(), min_tags == 1);
    ASSERT_EQ(output->tags.size(), num_tags);
    EXPECT_EQ(output->tags[0].json_schema,
              R"({"type":"object","properties": {"a": {"type": "integer"}}})");
    EXPECT_EQ(output->max_tags, choice == kNamed ? 1 : UINT32_MAX);
  }
  EXPECT_EQ(constrained(tools(members))->tags[1].json_schema,
            R"({"type":"object","additionalProperties":false})");
  EXPECT_EQ(constrained(tools(members) + R"(, "parallel_tool_calls": false)")->max_tags, 1u);
  EXPECT_EQ(constrained(tools(members), ToolFormat::kLlama3Json)->triggers,
            (std::vector<std::string>{R"({"name": "f")", R"({"name": "g")"}));
  EXPECT_EQ(constrained(tools(members, kRequired), ToolFormat::kLlama3Json)->tags[0].begin,
            "{\"name\": \"f\", \"parameters\": ");
}

TEST(ConstrainAnswer, ArgumentsAreAnObjectBySchemasAsTheyAreWritten) {
  const auto schema_of = [](const std::string& parameters) {
    return constrained(tools(R"("parameters": )" + parameters, kRequired))->tags[0].json_schema;
  };
  EXPECT_EQ(schema_of("{ }"), R"({"type":"object" })");
  EXPECT_EQ(schema_of(R"({"const": {"a": 18446744073709551617}})"),
            R"({"type":"object","const": {"a": 18446744073709551617}})");
  EXPECT_EQ(schema_of(R"({"type": ["object", "null"], "maxProperties": 1.0})"),
            R"({"type": "object", "maxProperties": 1.0})");
  EXPECT_EQ(schema_of(R"({"type": ["object"], "x": 1e2})"), R"({"type": ["object"], "x": 1e2})");
  EXPECT_TRUE(refused(tools(R"("parameters": {"minProperties": 1, "minProperties": 0})", kRequired))
                  .starts_with("400 tools[0].function.parameters: "));
}

TEST(ConstrainAnswer, NotStrictIsAnyObject) {
  const std::string members = R"("strict": false, "parameters": {"$ref": "other.json"})";
  for (const char* choice : {"", kRequired}) {
    EXPECT_EQ(constrained(tools(members, choice))->tags[0].json_schema, R"({"type":"object"})");
  }
}

TEST(ConstrainAnswer, SchemasThatCannotBeEnforced) {
  const std::string refusal_begins =
      "400 tools[0].function.parameters: tools[0].function.parameters cannot be enforced: ";
  EXPECT_TRUE(refused(tools(kOdd, kRequired)).starts_with(refusal_begins));
  EXPECT_TRUE(
      refused(tools(R"("strict": true, )" + std::string(kOdd))).starts_with(refusal_begins));
  std::vector<std::string> warnings;
  const auto output = constrained(tools(kOdd), ToolFormat::kHermes, &warnings);
  EXPECT_EQ(output->tags[0].json_schema, R"({"type":"object"})");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(
      warnings[0].starts_with("tools[0].function.parameters cannot be enforced, so that "
                              "the arguments of \"f\" are any object: "))
      << warnings[0];
}

TEST(ConstrainAnswer, ACallOrJson) {
  const std::string members = R"("parameters": {})";
  const std::string format = R"(, "response_format": {"type": "json_schema", "json_schema":
      {"name": "x", "schema": {"type": "null"}}})";
  const auto output = constrained(tools(members) + format);
  ASSERT_EQ(output->tags.size(), 3u);
  EXPECT_EQ(output->tags[2], (StructuralTag{"", R"({"type": "null"})", ""}));
  EXPECT_EQ(constrained(tools(members, kRequired) + format)->tags.size(), 2u);
  EXPECT_TRUE(refused(tools(members) + R"(, "guided_regex": "a")")
                  .starts_with("400 guided_regex: guided_regex does not go with tools"));
  EXPECT_EQ(constrained(tools(members) + R"(, "guided_regex": "a")", ToolFormat::kNone)->kind,
            Kind::kRegex);
}

}  // namespace
}  // namespace quire::server
