#include "server/api/checkable_schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace quire::server {
namespace {

std::string refusal_by(const std::string& schema, const std::string& value) {
  const auto found = check_against(Json::parse(schema), Json::parse(value), "arguments");
  return found ? found->message : "";
}

TEST(CheckableSchema, ChecksWhatToolsUse) {
  const std::string schema = R"({
    "type": "object", "$schema": "x", "title": "T",
    "properties": {
      "city": {"type": "string", "minLength": 1, "description": "d"},
      "unit": {"enum": ["C", "F"]},
      "days": {"type": "array", "items": {"type": "integer", "minimum": 1}},
      "when": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["city"], "additionalProperties": false})";
  EXPECT_EQ(refusal_by(schema, R"({"city": "Rome", "unit": "C", "days": [1, 2], "when": null})"),
            "");
  EXPECT_EQ(refusal_by(schema, "{}"), "arguments.city is missing.");
  EXPECT_EQ(refusal_by(schema, R"({"city": 5})"), "arguments.city is 5, but must be a string.");
  EXPECT_NE(refusal_by(schema, R"({"city": "R", "unit": "K"})"), "");
  EXPECT_EQ(refusal_by(schema, R"({"city": "R", "days": [1, 0]})"),
            "arguments.days[1] is 0, but must be at least 1.");
  EXPECT_EQ(refusal_by(schema, R"({"city": "R", "x": 1})"), "arguments.x is not known.");
  EXPECT_EQ(refusal_by(schema, "[]"), "arguments is an empty array, but must be an object.");
}

TEST(CheckableSchema, RefusesNothingThatItCannotCheck) {
  const char* schemas[] = {
      R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}})",
      R"({"properties": {"a": {"type": "integer", "pattern": "(a+)+$"}}})",
      R"({"patternProperties": {"^a": {}}, "additionalProperties": false})",
      R"({"not": {"properties": {"a": {"pattern": "x"}}}})",
      R"({"not": {"$ref": "#/x"}})",
      R"({"oneOf": [{"required": ["a"]}, {"$ref": "#/x"}]})",
      R"({"allOf": [{"if": {}, "then": false}], "oneOf": [{"format": "x"}, {}]})",
      R"({"type": "thing"})",
      R"({"type": []})",
      R"({"properties": 5, "required": "a"})",
      R"({"properties": {"a": {"exclusiveMinimum": true}}, "items": [{}], "enum": []})",
      R"({"x-error": 5, "minProperties": -1, "required": []})",
      "true",
      "5",
      "null",
      "[]"};
  for (const char* schema : schemas) EXPECT_EQ(refusal_by(schema, R"({"a": 1})"), "") << schema;
}

TEST(CheckableSchema, ChecksAllThatIsLeft) {
  EXPECT_NE(refusal_by(R"({"required": ["b"], "$ref": "#/x"})", R"({"a": 1})"), "");
  EXPECT_NE(refusal_by(R"({"not": {"required": ["a"], "title": "t"}})", R"({"a": 1})"), "");
  EXPECT_NE(refusal_by(R"({"oneOf": [{"required": ["a"]}, {}]})", R"({"a": 1})"), "");
  EXPECT_NE(refusal_by(R"({"oneOf": [{"type": "null"}, {"type": "string", "pattern": "x"}],
                          "allOf": [{}]})",
                       R"({"a": 1})"),
            "");
  EXPECT_NE(refusal_by("false", R"({"a": 1})"), "");
  EXPECT_NE(refusal_by(R"({"properties": {"a": false}})", R"({"a": 1})"), "");
}

}  // namespace
}  // namespace quire::server
