#include "parsers/constraint_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace quire {
namespace {

using Json = nlohmann::ordered_json;
using Kind = StructuredOutput::Kind;

std::optional<ConstraintField> read(const std::string& text) {
  return constraint_of(Json::parse(text), RawJson(text));
}

// "FIELD: MESSAGE" of what is refused, "" where nothing is.
std::string refused(const std::string& text) {
  try {
    read(text);
  } catch (const ConstraintFieldError& error) {
    return error.field() + ": " + error.what();
  }
  return "";
}

TEST(ConstraintFields, NothingAsksForNothing) {
  for (const char* text :
       {"{}", R"({"response_format": null, "structured_outputs": null, "guided_json": null})",
        R"({"response_format": {"type": "text"}})", R"({"n": 2})"}) {
    EXPECT_EQ(read(text), std::nullopt) << text;
  }
}

TEST(ConstraintFields, ResponseFormats) {
  const auto schema = read(R"({"response_format": {"type": "json_schema", "json_schema": {
      "name": "x", "strict": true, "schema": {"type": "object", "minProperties": 1}}}})");
  EXPECT_EQ(schema->constraint.kind, Kind::kJsonSchema);
  EXPECT_EQ(schema->constraint.text, R"({"type": "object", "minProperties": 1})");
  EXPECT_EQ(schema->field, "response_format.json_schema.schema");
  const auto object = read(R"({"response_format": {"type": "json_object"}})");
  EXPECT_EQ(object->constraint.kind, Kind::kJsonObject);
  EXPECT_EQ(object->field, "response_format");
}

TEST(ConstraintFields, StructuredOutputsByBothNames) {
  for (const auto& [fields, field] : std::vector<std::pair<std::string, std::string>>{
           {R"({"structured_outputs": {"json": {"type":"null"}}})", "structured_outputs.json"},
           {R"({"structured_outputs": {"json": "{\"type\":\"null\"}"}})",
            "structured_outputs.json"},
           {R"({"guided_json": {"type":"null"}})", "guided_json"}}) {
    const auto found = read(fields);
    EXPECT_EQ(found->constraint.kind, Kind::kJsonSchema);
    EXPECT_EQ(found->constraint.text, R"({"type":"null"})");
    EXPECT_EQ(found->field, field);
  }
  EXPECT_EQ(read(R"({"guided_regex": "[a-z]+"})")->constraint,
            (StructuredOutput{.kind = Kind::kRegex, .text = "[a-z]+"}));
  EXPECT_EQ(read(R"({"structured_outputs": {"grammar": "root ::= \"a\""}})")->constraint,
            (StructuredOutput{.kind = Kind::kGrammar, .text = "root ::= \"a\""}));
  EXPECT_EQ(read(R"({"guided_choice": ["a", "b"]})")->constraint,
            (StructuredOutput{.kind = Kind::kChoice, .choices = {"a", "b"}}));
  EXPECT_EQ(read(R"({"structured_outputs": {"json_object": true, "regex": null}})")->constraint,
            (StructuredOutput{.kind = Kind::kJsonObject}));
}

TEST(ConstraintFields, NamesOfOtherServers) {
  const StructuredOutput schema{.kind = Kind::kJsonSchema, .text = R"({"const": 1.0})"};
  EXPECT_EQ(read(R"({"json_schema": {"const": 1.0}})")->constraint, schema);
  EXPECT_EQ(read(R"({"json_schema": "{\"const\": 1.0}"})")->constraint, schema);
  const StructuredOutput grammar{.kind = Kind::kGrammar, .text = "root ::= \"a\""};
  EXPECT_EQ(read(R"({"grammar": "root ::= \"a\""})")->constraint, grammar);
  EXPECT_EQ(read(R"({"ebnf": "root ::= \"a\""})")->constraint, grammar);
  EXPECT_EQ(read(R"({"regex": "a+"})")->constraint,
            (StructuredOutput{.kind = Kind::kRegex, .text = "a+"}));
  EXPECT_EQ(read(R"({"regex": "a+"})")->field, "regex");
  EXPECT_EQ(read(R"({"guided_json_object": true})")->constraint,
            (StructuredOutput{.kind = Kind::kJsonObject}));
  EXPECT_EQ(read(R"({"guided_structural_tag": {"triggers": ["<"], "structures": [
                    {"begin": "<", "schema": {"const": 1.0}, "end": ">"}]}})")
                ->constraint.tags,
            (std::vector<StructuralTag>{{"<", R"({"const": 1.0})", ">"}}));
  EXPECT_EQ(read(R"({"grammar": "", "guided_json_object": false})"), std::nullopt);
  EXPECT_EQ(refused(R"({"grammar": {"type": "regex"}})"),
            "grammar: grammar is an object, but must be a string.");
  EXPECT_EQ(refused(R"({"regex": "a", "guided_regex": "a"})"),
            "regex: guided_regex and regex are both given, but an answer follows one of them.");
}

TEST(ConstraintFields, SchemasAreThoseThatAreWritten) {
  const std::string schema =
      R"({"const" : 18446744073709551617, "type":"number","type": "integer"})";
  const std::string tags = R"({"type": "structural_tag", "triggers": ["<"], "structures": [
      {"begin": "<a>", "end": ""}, {"begin": "<b>", "schema": )" +
                           schema + R"(, "end": ""}]})";
  for (const std::string& text :
       {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": )" + schema +
            "}}}",
        R"({"structured_outputs": {"json": )" + schema + "}}",
        R"({"guided_json": {}, "guided_json":)" + schema + "}"}) {
    EXPECT_EQ(read(text)->constraint.text, schema) << text;
  }
  for (const std::string& text : {R"({"response_format": )" + tags + "}",
                                  R"({"structured_outputs": {"structural_tag": )" + tags + "}}"}) {
    EXPECT_EQ(read(text)->constraint.tags[0].json_schema, "{}");
    EXPECT_EQ(read(text)->constraint.tags[1].json_schema, schema) << text;
  }
  const std::string text = R"({"triggers": ["<"], "structures": [)"
                           R"({"begin": "<", "schema": {"const": 1.0}, "end": ""}]})";
  EXPECT_EQ(read(R"({"structured_outputs": {"structural_tag": )" + Json(text).dump() + "}}")
                ->constraint.tags[0]
                .json_schema,
            R"({"const": 1.0})");
  EXPECT_EQ(
      constraint_of(Json::parse(R"({"guided_json": {"const" : 1.0}})"), RawJson())->constraint.text,
      R"({"const":1.0})");
}

TEST(ConstraintFields, ASchemaGivenAsTextKeepsItsDigits) {
  EXPECT_EQ(read(R"({"guided_json": "{\"const\": 0.10}"})")->constraint.text, R"({"const": 0.10})");
}

TEST(ConstraintFields, StructuralTags) {
  const std::string tag = R"({"type": "structural_tag", "triggers": ["<f"], "structures": [
      {"begin": "<f>", "schema": {"type": "null"}, "end": "</f>"},
      {"begin": "<fg>", "end": "</fg>"}]})";
  const StructuredOutput wanted{
      .kind = Kind::kTags,
      .tags = {{"<f>", R"({"type": "null"})", "</f>"}, {"<fg>", "{}", "</fg>"}},
      .triggers = {"<f"}};
  EXPECT_EQ(read(R"({"response_format": )" + tag + "}")->constraint, wanted);
  EXPECT_EQ(read(R"({"structured_outputs": {"structural_tag": )" + tag + "}}")->constraint, wanted);
  EXPECT_EQ(
      read(R"({"structured_outputs": {"structural_tag": )" + Json(tag).dump() + "}}")->constraint,
      wanted);
}

TEST(ConstraintFields, RefuseTwoConstraints) {
  EXPECT_EQ(refused(R"({"response_format": {"type": "json_object"}, "guided_regex": "a"})"),
            "guided_regex: response_format and guided_regex are both given, but an answer follows "
            "one of them.");
  EXPECT_EQ(refused(R"({"structured_outputs": {"regex": "a", "choice": ["b"]}})"),
            "structured_outputs.choice: structured_outputs.regex and structured_outputs.choice are "
            "both given, but an answer follows one of them.");
  EXPECT_EQ(refused(R"({"response_format": {"type": "text"}, "guided_regex": "a"})"), "");
}

TEST(ConstraintFields, RefuseWhatIsNoConstraint) {
  EXPECT_EQ(refused(R"({"response_format": "json"})"),
            "response_format: response_format is a string, but must be an object.");
  EXPECT_EQ(refused(R"({"response_format": {}})"),
            "response_format.type: response_format.type is missing.");
  EXPECT_EQ(refused(R"({"response_format": {"type": "xml"}})"),
            "response_format.type: response_format.type is \"xml\", but must be \"text\", "
            "\"json_object\", \"json_schema\" or \"structural_tag\".");
  EXPECT_EQ(refused(R"({"response_format": {"type": "json_schema"}})"),
            "response_format.json_schema: response_format.json_schema is missing.");
  EXPECT_EQ(refused(R"({"response_format": {"type": "json_schema", "json_schema": {}}})"),
            "response_format.json_schema.schema: response_format.json_schema.schema is missing.");
  EXPECT_EQ(refused(R"({"response_format": {"type": "json_object", "schema": {}}})"),
            "response_format.schema: response_format.schema goes with no json_object: give the "
            "type json_schema.");
  EXPECT_EQ(refused(R"({"guided_json": 5})"),
            "guided_json: guided_json is 5, but must be a JSON schema: an object, or a "
            "string that holds one.");
  EXPECT_EQ(refused(R"({"guided_regex": ["a"]})"),
            "guided_regex: guided_regex is an array, but must be a string.");
  EXPECT_EQ(refused(R"({"guided_choice": ["a", 5]})"),
            "guided_choice[1]: guided_choice[1] is 5, but must be a string.");
  EXPECT_EQ(refused(R"({"guided_choice": []})"),
            "guided_choice: guided_choice is empty, but must have at least one string.");
  EXPECT_EQ(refused(R"({"structured_outputs": {}})"),
            "structured_outputs: structured_outputs is empty, but must have one of json, regex, "
            "choice, grammar, json_object and structural_tag.");
  EXPECT_EQ(refused(R"({"structured_outputs": {"json_object": false}})"),
            "structured_outputs.json_object: structured_outputs.json_object can only be true; else "
            "leave it out.");
}

TEST(ConstraintFields, RefuseWhatIsNotActedOn) {
  EXPECT_TRUE(
      constraint_of(
          Json::parse(R"({"structured_outputs": {"json": {}, "disable_any_whitespace": true}})"),
          {})
          ->constraint.disable_any_whitespace);
  EXPECT_EQ(refused(R"({"structured_outputs": {"json": {}, "disable_any_whitespace": 1}})"),
            "structured_outputs.disable_any_whitespace: structured_outputs.disable_any_whitespace "
            "is 1, but must be true or false.");
  EXPECT_EQ(refused(R"({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}})"),
            "structured_outputs.whitespace_pattern: structured_outputs.whitespace_pattern is not "
            "supported; leave it out.");
  EXPECT_EQ(refused(R"({"structured_outputs": {"regex": "a", "disable_any_whitespace": false,
                       "disable_fallback": true}})"),
            "");
}

TEST(ConstraintFields, RefuseStructuralTagsThatNeverBegin) {
  const auto with = [](const std::string& members) {
    return refused(R"({"structured_outputs": {"structural_tag": {)" + members + "}}}");
  };
  const std::string field = "structured_outputs.structural_tag";
  EXPECT_EQ(with(R"("triggers": ["<f"], "structures": [{"begin": "<g>", "end": ""}])"),
            field + ".structures[0].begin: " + field +
                ".structures[0].begin begins with none of the triggers.");
  EXPECT_EQ(with(R"("triggers": [""], "structures": [{"begin": "<g>", "end": ""}])"),
            field + ".triggers[0]: " + field + ".triggers[0] is empty.");
  EXPECT_EQ(with(R"("triggers": ["<f"])"),
            field + ".structures: " + field + ".structures is missing.");
  EXPECT_EQ(with(R"("format": {})"), field + ".format: " + field +
                                         ".format is not supported: give structures and triggers.");
  EXPECT_TRUE(refused(R"({"structured_outputs": {"structural_tag": "{"}})")
                  .starts_with(field + ": " + field + " is not valid JSON"));
}

}  // namespace
}  // namespace quire
