#include "server/api/json_schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "quire/error.h"

namespace quire::server {
namespace {

// The message of the violation, or "" for a valid value.
std::string check(const char* schema, const char* value) {
  const JsonSchemas schemas(Json{{"Test", Json::parse(schema)}});
  const auto violation = schemas.check("Test", Json::parse(value));
  return violation ? violation->message : "";
}

std::string path(const char* schema, const char* value) {
  const JsonSchemas schemas(Json{{"Test", Json::parse(schema)}});
  const auto violation = schemas.check("Test", Json::parse(value));
  return violation ? violation->path : "valid";
}

TEST(JsonSchema, Types) {
  constexpr const char* kNullable = R"({"properties": {"n": {"type": ["integer", "null"]}}})";
  EXPECT_EQ(check(kNullable, R"({"n": 1})"), "");
  EXPECT_EQ(check(kNullable, R"({"n": 1.0})"), "");
  EXPECT_EQ(check(kNullable, R"({"n": null})"), "");
  EXPECT_EQ(check(kNullable, R"({"n": 1.5})"), "n is 1.5, but must be an integer or null.");
  EXPECT_EQ(check(kNullable, R"({"n": "1"})"), "n is \"1\", but must be an integer or null.");
  EXPECT_EQ(check(kNullable, R"({"n": true})"), "n is true, but must be an integer or null.");
  EXPECT_EQ(check(R"({"type": "number"})", "1"), "");
  EXPECT_EQ(check(R"({"type": "object"})", "[1, 2]"),
            "The request body is an array of 2, but must be an object.");
}

TEST(JsonSchema, Bounds) {
  constexpr const char* kShare = R"({"properties": {"p": {"exclusiveMinimum": 0, "maximum": 1}}})";
  EXPECT_EQ(check(kShare, R"({"p": 1})"), "");
  EXPECT_EQ(check(kShare, R"({"p": 0})"), "p is 0, but must be greater than 0.");
  EXPECT_EQ(check(kShare, R"({"p": 1.01})"), "p is 1.01, but must be at most 1.");
  EXPECT_EQ(check(R"({"minimum": 1, "exclusiveMaximum": 3})", "3"),
            "The request body is 3, but must be less than 3.");
}

TEST(JsonSchema, BoundsAreExactAtTheEndsOfTheIntegers) {
  constexpr const char* kLong =
      R"({"minimum": -9223372036854775808, "maximum": 9223372036854775807})";
  EXPECT_EQ(check(kLong, "9223372036854775807"), "");
  EXPECT_EQ(check(kLong, "-9223372036854775808"), "");
  EXPECT_NE(check(kLong, "9223372036854775808"), "");
  EXPECT_NE(check(kLong, "9223372036854775808.0"), "");
  EXPECT_NE(check(kLong, "1e300"), "");
}

TEST(JsonSchema, LengthsCountCharacters) {
  constexpr const char* kShort = R"({"minLength": 1, "maxLength": 2})";
  EXPECT_EQ(check(kShort, "\"é😀\""), "");
  EXPECT_EQ(check(kShort, "\"\""), "The request body is \"\", but must have at least 1 character.");
  EXPECT_NE(check(kShort, "\"abc\""), "");
  EXPECT_EQ(check(kShort, "5"), "");  // says nothing of numbers
}

TEST(JsonSchema, Patterns) {
  constexpr const char* kDigits = R"({"maxLength": 9, "pattern": "^[0-9]+$"})";
  EXPECT_EQ(check(kDigits, "\"012\""), "");
  EXPECT_NE(check(kDigits, "\"01a\""), "");
  EXPECT_THROW(check(R"({"pattern": "a*"})", "\"a\""), Error);
}

TEST(JsonSchema, EnumAndConst) {
  EXPECT_EQ(check(R"({"enum": ["a", "b", null]})", "null"), "");
  EXPECT_EQ(check(R"({"enum": ["a", "b", null]})", "\"c\""),
            R"(The request body is "c", but must be "a", "b" or null.)");
  EXPECT_EQ(check(R"({"const": 1})", "1.0"), "");
  EXPECT_EQ(check(R"({"const": false})", "true"), "The request body is true, but must be false.");
}

TEST(JsonSchema, ObjectsAndArrays) {
  constexpr const char* kSchema = R"({
    "type": "object", "required": ["list"], "additionalProperties": false, "maxProperties": 2,
    "properties": {"list": {"type": "array", "minItems": 1, "maxItems": 2,
                            "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
                   "more": {"additionalProperties": {"type": "integer"},
                            "propertyNames": {"maxLength": 2}}}})";
  EXPECT_EQ(check(kSchema, R"({"list": [{}, {"x": "y", "z": 1}]})"), "");
  EXPECT_EQ(check(kSchema, "{}"), "list is missing.");
  EXPECT_EQ(check(kSchema, R"({"list": []})"),
            "list is an empty array, but must have at least 1 item.");
  EXPECT_EQ(check(kSchema, R"({"list": [1, 2, 3]})"),
            "list is an array of 3, but must have at most 2 items.");
  EXPECT_EQ(check(kSchema, R"({"list": [{}, {"x": 5}]})"), "list[1].x is 5, but must be a string.");
  EXPECT_EQ(path(kSchema, R"({"list": [{}, {"x": 5}]})"), "list[1].x");
  EXPECT_EQ(check(kSchema, R"({"list": [{}], "other": 1})"), "other is not known.");
  EXPECT_EQ(check(kSchema, R"({"list": [{}], "more": {"a": "b"}})"),
            "more.a is \"b\", but must be an integer.");
  EXPECT_NE(check(kSchema, R"({"list": [{}], "more": {"abc": 1}})"), "");
}

constexpr const char* kPrompt = R"({"properties": {"prompt": {"anyOf": [
    {"type": "string", "minLength": 1},
    {"type": "array", "minItems": 1, "items": {"type": "string"}},
    {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
    {"type": "array", "minItems": 1,
     "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}}]}}})";

TEST(JsonSchema, AnyOfNamesWhatWasMeant) {
  for (const char* valid : {R"("a")", R"(["a", "b"])", "[1, 2]", "[[1], [2, 3]]"}) {
    EXPECT_EQ(check(kPrompt, (R"({"prompt": )" + std::string(valid) + "}").c_str()), "") << valid;
  }
  EXPECT_EQ(check(kPrompt, R"({"prompt": 5})"), "prompt is 5, but must be a string or an array.");
  EXPECT_EQ(check(kPrompt, R"({"prompt": ""})"),
            "prompt is \"\", but must have at least 1 character.");
  EXPECT_EQ(check(kPrompt, R"({"prompt": ["a", 5]})"), "prompt[1] is 5, but must be a string.");
  EXPECT_EQ(check(kPrompt, R"({"prompt": [1, "a"]})"),
            "prompt[1] is \"a\", but must be an integer.");
  EXPECT_EQ(check(kPrompt, R"({"prompt": [-1]})"), "prompt[0] is -1, but must be at least 0.");
  EXPECT_EQ(check(kPrompt, R"({"prompt": [[1], [-2]]})"),
            "prompt[1][0] is -2, but must be at least 0.");
  EXPECT_EQ(check(kPrompt, R"({"prompt": []})"),
            "prompt is an empty array, but must have at least 1 item.");
}

TEST(JsonSchema, OneOfNotAndReferences) {
  const JsonSchemas schemas(Json::parse(R"({
    "Number": {"oneOf": [{"type": "integer"}, {"minimum": 10}], "not": {"const": 3}},
    "Tree": {"properties": {"left": {"$ref": "#/components/schemas/Tree"},
                            "value": {"$ref": "#/components/schemas/Number"}}}})"));
  EXPECT_FALSE(schemas.check("Number", 5));
  EXPECT_FALSE(schemas.check("Number", 10.5));
  EXPECT_TRUE(schemas.check("Number", 11));
  EXPECT_TRUE(schemas.check("Number", 3));
  EXPECT_EQ(schemas.check("Tree", Json::parse(R"({"left": {"left": {"value": 3}}})"))->path,
            "left.left.value");
}

TEST(JsonSchema, OurOwnMessages) {
  constexpr const char* kSchema = R"({
    "properties": {"image": {"type": "null", "x-error": "Images are not supported."},
                   "a": {"type": ["integer", "null"]}},
    "allOf": [{"anyOf": [{"properties": {"a": {"type": "null"}}}, {"required": ["b"]}],
               "x-error": "a needs b.", "x-param": "a"}]})";
  EXPECT_EQ(check(kSchema, R"({"image": null})"), "");
  EXPECT_EQ(check(kSchema, R"({"image": "x"})"), "Images are not supported.");
  EXPECT_EQ(path(kSchema, R"({"image": "x"})"), "image");
  EXPECT_EQ(check(kSchema, R"({"a": 1, "b": 1})"), "");
  EXPECT_EQ(check(kSchema, R"({"a": 1})"), "a needs b.");
  EXPECT_EQ(path(kSchema, R"({"a": 1})"), "a");
}

TEST(JsonSchema, RefusesSchemasThatItCannotCheck) {
  for (const char* schema : {R"({"uniqueItems": true})", R"({"type": "text"})", "[]",
                             R"({"$ref": "#/components/schemas/None"})", R"({"minLength": -1})"}) {
    EXPECT_THROW(JsonSchemas(Json{{"Test", Json::parse(schema)}}), Error) << schema;
  }
}

TEST(JsonSchema, LongValuesAreNotRepeated) {
  EXPECT_EQ(check(R"({"maxLength": 3})", ("\"" + std::string(5000, 'a') + "\"").c_str()),
            "The request body is a string of 5000 characters, but must have at most 3 characters.");
}

}  // namespace
}  // namespace quire::server
