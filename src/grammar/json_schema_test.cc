#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

struct SchemaCase {
  std::string schema;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

void expect(const std::vector<SchemaCase>& cases) {
  CompileLimits limits;
  limits.time = std::chrono::minutes(10);  // on a slow machine, under a sanitizer
  for (const SchemaCase& one : cases) {
    GrammarPtr grammar;
    ASSERT_NO_THROW(grammar = compile_json_schema(one.schema, limits)) << one.schema;
    for (const std::string& text : one.accepted) {
      EXPECT_TRUE(accepts(grammar, text)) << one.schema << " on " << text;
    }
    for (const std::string& text : one.rejected) {
      EXPECT_FALSE(accepts(grammar, text)) << one.schema << " on " << text;
    }
  }
}

std::string schema_error(const std::string& schema, const CompileLimits& limits = {}) {
  try {
    compile_json_schema(schema, limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JsonSchema, AnyJson) {
  expect(
      {{"true",
        {"1", "-0.5e+3", " [ 1 , {\"a\" : null } ]\n", "\"\\u0041\\ud83d\\ude00\"", "true", "{}"},
        {"",
         "01",
         "1.",
         ".5",
         "+1",
         "[1,]",
         "{\"a\":1,}",
         "{a:1}",
         "\"\n\"",
         "\"\\x\"",
         "\"\\ud83d\"",
         "\"\\ude00\"",
         "\"\xff\"",
         "\"\xed\xa0\x80\"",
         "nul",
         "1 2",
         "[",
         "NaN",
         "{\"a\":1,\"a\":2}",
         "{\"a\":1,\"\\u0061\":2}"}}});
}

TEST(JsonSchema, UnevaluatedThatDemandNothing) {
  expect({
      {R"({"type": "object", "anyOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]},
                                       {"required": ["b"]}], "unevaluatedProperties": true})",
       {R"({"a": null, "c": 1})", R"({"b": 1})"},
       {R"({"a": 1})", "{}"}},
      {R"({"type": "array", "contains": {"const": 1}, "unevaluatedItems": {}})",
       {"[2, 1]"},
       {"[2]"}},
      {R"({"allOf": [{"unevaluatedProperties": true}], "unevaluatedProperties": false})",
       {R"({"a": 1})"},
       {}},
  });
}

TEST(JsonSchema, ManyChoicesOnAMember) {
  // Only one of the conditions is met by a value, so there are as many alternatives as conditions.
  std::string conditions;
  std::string kinds;
  std::string options;
  std::string closed;
  const auto append = [](std::string& list, const std::string& item) {
    list += (list.empty() ? "" : ", ") + item;
  };
  for (int i = 0; i < 40; ++i) {
    append(kinds, fmt::format(R"("k{}")", i));
    append(conditions, fmt::format(R"({{"if": {{"properties": {{"t": {{"const": "k{0}"}}}}}},
                                       "then": {{"required": ["r{0}"]}}}})",
                                   i));
    append(options,
           fmt::format(
               R"({{"properties": {{"a{0}": {{"type": "integer"}}}}, "required": ["a{0}"]}})", i));
    append(closed, fmt::format(R"({{"type": "object", "required": ["t"], "properties": {{
                                   "t": {{"const": "k{0}"}}, "a{0}": {{}}}},
                                   "additionalProperties": false}})",
                               i));
  }
  expect({
      {R"({"type": "object", "required": ["t"], "properties": {"t": {"enum": [)" + kinds +
           R"(]}}, "allOf": [)" + conditions + "]}",
       {R"({"t": "k7", "r7": 1})", R"({"r39": 0, "t": "k39"})"},
       {R"({"t": "k7"})", R"({"t": "k7", "r8": 1})", R"({"t": "k40"})", "{}"}},
      {R"({"properties": {"t": {"minimum": 0}}, "allOf": [
            {"if": {"properties": {"t": {"const": 1}}}, "then": {"required": ["a"]}},
            {"if": {"properties": {"t": {"const": 1.0}}, "required": ["t"]}, "else": {"required": ["b"]}},
            {"if": {"type": "object", "properties": {"t": {"const": "1"}}}, "else": {"required": ["c"]}},
            {"if": {"properties": {"t": {"type": "string", "const": "x"}}}, "then": false}]})",
       {R"({"t": 1, "a": 1, "c": 1})", R"({"t": "1", "b": 1})", R"({"t": 2, "b": 1, "c": 1})"},
       {R"({"t": 1.0, "c": 1})", R"({"t": 1, "a": 1})", R"({"t": "1"})", R"({"t": "x"})",
        R"({"t": 2, "b": 1})", "{}", "[]", R"({"a": 1, "b": 1, "c": 1})",
        R"({"t": -1, "b": 1, "c": 1})"}},
      {R"({"allOf": [
            {"if": {"type": "object", "properties": {"t": {"const": 1}}, "required": ["t"]}, "then": false},
            {"if": {"type": "object", "properties": {"t": {"const": 2}}, "required": ["t"]}, "then": {"required": ["a"]}},
            {"if": {"type": "object", "properties": {"t": {"const": 3}}}, "then": {"required": ["b"]},
             "else": {"maxLength": 1}}]})",
       {R"({"b": 1})", R"({"t": 2, "a": 1})", R"({"t": 3, "b": 1})", R"("x")", "[]", R"({"t": 4})"},
       {"{}", R"({"t": 1, "b": 1})", R"({"t": 2, "b": 1})", R"("xx")", R"({"t": 3})"}},
      {R"({"oneOf": [)" + options + "]}",
       {R"({"a3": 1})", R"({"a3": 1, "a4": "x"})"},
       {R"({"a3": 1, "a4": 2})", R"({"a3": "x"})", "{}", "[]"}},
      {R"({"oneOf": [)" + closed + R"(, {"type": "object", "properties": {"t": {"const": "k3"}},
           "required": ["t", "b"]}]})",
       {R"({"t": "k7", "a7": 1})", R"({"t": "k3"})", R"({"t": "k3", "b": 1})"},
       {R"({"t": "k7", "a8": 1})", R"({"t": "k40"})"}},
      {R"({"not": {"properties": {"a": {"type": "integer"}, "b": true}, "required": ["a", "b"]}})",
       {R"({"a": 1})", R"({"b": 1})", R"({"a": "x", "b": 1})", "{}"},
       {R"({"a": 1, "b": 1})", "[]", "1"}},
  });
}

// A domain of that many characters, which are letters but for a dot behind each 60.
std::string domain_of(size_t length) {
  std::string domain;
  for (size_t i = 1; i <= length; ++i) domain += i % 61 == 0 ? '.' : 'd';
  return domain;
}

TEST(JsonSchema, LengthsOfMailAddresses) {
  const auto quoted = [](const std::string& text) { return "\"" + text + "\""; };
  const auto many = [](size_t count, const std::string& text) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += text;
    return out;
  };
  expect({
      {R"({"format": "email"})",
       {quoted(many(64, "a") + "@b.c"), quoted("a@" + domain_of(252)),
        quoted("a@" + many(63, "b") + ".c"), quoted(many(64, "a") + "@" + domain_of(189)),
        R"("\"@@\"@b.c")", quoted("\\\"" + many(62, "@") + "\\\"@b.c"),
        quoted("\\\"" + many(31, "\\\\@") + "\\\"@b.c")},
       {quoted(many(65, "a") + "@b.c"), quoted("a@" + domain_of(253)),
        quoted("a@" + many(64, "b") + ".c"), quoted(many(64, "a") + "@" + domain_of(190)),
        quoted("\\\"" + many(63, "@") + "\\\"@b.c"),
        quoted("\\\"" + many(31, "\\\\@") + "a\\\"@b.c"), R"("@b.c")"}},
      {R"({"format": "idn-email"})",
       {quoted(many(32, "\u00fc") + "@b.c"), quoted("a@" + many(63, "\u00fc") + ".c")},
       {quoted(many(32, "\u00fc") + "a@b.c"), quoted("a@" + many(64, "\u00fc") + ".c")}},
      {R"({"type": "string", "not": {"format": "email"}})",
       {quoted(many(65, "a") + "@b.c"), quoted("a@" + domain_of(253))},
       {quoted(many(64, "a") + "@b.c")}},
  });
}

TEST(JsonSchema, NumbersByTheirValue) {
  expect({
      {R"({"type": "integer"})", {"1", "1.0", "10e-1", "-0", "1e300"}, {"1.5", "1e-1", "\"1\""}},
      {R"({"minimum": -1.5, "exclusiveMaximum": 10})",
       {"-1.5", "-1.50", "9.99999999999999999999", "-0", "\"x\""},
       {"-1.51", "10", "10.0", "1e1", "-2", "100"}},
      {R"({"maximum": 0})", {"-0.0", "0", "-1"}, {"0.0001", "1e-9"}},
      {R"({"minimum": 0.01, "maximum": 0.02})", {"0.01", "0.015", "1e-2"}, {"0.009", "0.021", "0"}},
      {R"({"multipleOf": 0.01})", {"4.05", "4.050", "0", "-3", "1e308"}, {"0.001", "4.005"}},
      {R"({"type": "integer", "multipleOf": 7})", {"0", "49", "-7", "7e1"}, {"50", "3.5"}},
      {R"({"enum": [1, 2.50, -3]})", {"1.0", "2.5", "-3", "25e-1"}, {"2", "3"}},
      {R"({"maximum": 18446744073709551615})", {"18446744073709551615"}, {"18446744073709551616"}},
      {R"({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": true})",
       {"1.1"},
       {"1"}},
  });
}

TEST(JsonSchema, Strings) {
  expect({
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {"\"ab\"", "\"\u00e9\U0001F600\"", "\"\\n\\u00e9x\""},
       {"\"a\"", "\"abcd\"", "1"}},
      {R"({"type": "string", "pattern": "^a+$", "maxLength": 3})",
       {"\"a\"", "\"\\u0061a\""},
       {"\"\"", "\"aaaa\"", "\"b\""}},
      {R"({"enum": ["red", "\u00e9", null]})", {"\"red\"", "\"\\u00e9\"", "null"}, {"\"re\"", "1"}},
      {R"({"format": "date-time"})",
       {"\"2024-02-29T12:00:00Z\"", "\"1990-12-31T15:59:60-08:00\"", "1"},
       {"\"2023-02-29T12:00:00Z\"", "\"1990-12-31T15:59:60-07:00\"", "\"2024-01-01 12:00:00\""}},
      {R"({"format": "ipv6"})",
       {"\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\""},
       {"\"1::2::3\"", "\"12345::\"", "\":2:3:4:5:6:7:8\"", "\"1:2:3:4:5:6:7:8:9\""}},
      {R"({"format": "hostname"})", {"\"a-b.example\""}, {"\"-a\"", "\"a..b\"", "\"xn--X\""}},
      {R"({"format": "email"})", {"\"joe.bloggs@example.com\""}, {"\"2962\"", "\".a@b.c\""}},
      {R"({"format": "no such format"})", {"\"x\""}, {}},
  });
}

TEST(JsonSchema, Arrays) {
  expect({
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2})",
       {"[1]", "[1, 2]"},
       {"[]", "[1,2,3]", "[\"a\"]", "{}"}},
      {R"({"prefixItems": [{"const": 1}, {"type": "string"}], "items": false})",
       {"[]", "[1]", "[1,\"a\"]"},
       {"[2]", "[1,2]", "[1,\"a\",3]"}},
      {R"({"contains": {"const": 5}, "minContains": 2, "maxContains": 3})",
       {"[5,5]", "[1,5,5,5,2]", "\"x\""},
       {"[]", "[5]", "[5,5,5,5]"}},
      {R"({"uniqueItems": true})",
       {"[1,2]", "[{\"a\":1},{\"a\":2}]", "[[1],[[1]]]", "[1,\"1\",true]"},
       {"[1,1.0]", "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]", "[[10],[1e1]]", "[\"a\",\"\\u0061\"]"}},
      {R"({"items": {"uniqueItems": true}})", {"[[1,2],[1]]"}, {"[[1],[2,2]]"}},
      {R"({"not": {"contains": {"type": "null"}}, "type": "array"})", {"[1]", "[]"}, {"[1,null]"}},
      {R"({"not": {"uniqueItems": true}})", {"[1,2,1]"}, {"[1,2]", "3"}},
  });
}

TEST(JsonSchema, ObjectsInAnyOrder) {
  expect({
      {R"({"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"], "additionalProperties": false})",
       {R"({"a":1})", R"({"b":null,"a":1})", R"({"\u0061":1})"},
       {R"({})", R"({"a":"x"})", R"({"a":1,"c":1})"}},
      {R"({"patternProperties": {"^n": {"type": "number"}, "s$": {"minimum": 5}}, "additionalProperties": {"type": "null"}})",
       {R"({"n":1,"ns":5,"x":null})"},
       {R"({"n":"a"})", R"({"ns":4})", R"({"x":1})"}},
      {R"({"propertyNames": {"maxLength": 2, "pattern": "^[a-z]"}})",
       {R"({"a":1,"bb":2})", "3"},
       {R"({"abc":1})", R"({"1":1})"}},
      {R"({"minProperties": 1, "maxProperties": 2})",
       {R"({"a":1})"},
       {"{}", R"({"a":1,"b":1,"c":1})"}},
      {R"({"dependentRequired": {"a": ["b"]}})",
       {R"({"b":1})", R"({"b":1,"a":1})"},
       {R"({"a":1})"}},
      {R"({"dependentSchemas": {"a": {"required": ["b"], "properties": {"a": {"const": 1}}}}})",
       {R"({"a":1,"b":2})", R"({"x":3})", "[]"},
       {R"({"a":1})", R"({"a":2,"b":2})"}},
      {R"({"const": {"a": [1, {"b": null}]}})",
       {R"({ "a" : [1.0, {"b":null}] })"},
       {R"({"a":[1,{}]})", R"({"a":[1,{"b":null}],"c":1})", R"({})"}},
      {R"({"not": {"additionalProperties": {"type": "string"}}})",
       {R"({"a":"x","b":1})"},
       {R"({})", R"({"a":"x"})", "1"}},
      {R"({"type": "object", "not": {"propertyNames": {"pattern": "^a"}}})",
       {R"({"a":1,"b":1})"},
       {R"({"a":1})", "{}"}},
      {R"({"type": "object", "not": {"patternProperties": {"^a": {"type": "string"}}}})",
       {R"({"ab":1,"a":"x"})"},
       {R"({"a":"x"})", R"({"b":1})"}},
  });
}

TEST(JsonSchema, Combinations) {
  expect({
      {R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"})",
       {R"({"a":1})", R"({"b":1,"c":2})"},
       {R"({"a":1,"b":1})", "{}"}},
      {R"({"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]})", {"3", "10"}, {"15", "1", "\"x\""}},
      {R"({"allOf": [{"minimum": 1}, {"maximum": 3}], "anyOf": [{"type": "integer"}, {"const": 1.5}]})",
       {"1", "1.5", "3"},
       {"0", "2.5", "4"}},
      {R"({"not": {"type": ["string", "object"]}})", {"1", "[]", "null"}, {"\"a\"", "{}"}},
      {R"({"if": {"properties": {"k": {"const": "n"}}, "required": ["k"]}, "then": {"properties": {"v": {"type": "number"}}}, "else": {"properties": {"v": {"type": "string"}}}})",
       {R"({"v":1,"k":"n"})", R"({"v":"x"})", R"({"k":"m","v":"x"})", "7"},
       {R"({"v":"x","k":"n"})", R"({"v":1})"}},
      {R"({"not": {"not": {"type": "array", "items": {"not": {"enum": [1, "a", [2]]}}}}})",
       {"[]", "[2,\"b\",[1]]"},
       {"[1]", "[[2]]", "1"}},
      {R"({"not": {"oneOf": [{"minimum": 5}, {"multipleOf": 2}]}})", {"3", "6"}, {"4", "7"}},
      {R"({"$defs": {"tree": {"type": "object", "properties": {"children": {"items": {"$ref": "#/$defs/tree"}}, "v": {"type": "integer"}}, "required": ["v"]}}, "$ref": "#/$defs/tree"})",
       {R"({"v":1,"children":[{"v":2,"children":[]}]})"},
       {R"({"v":1,"children":[{"v":2,"children":[{}]}]})"}},
      {R"({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"properties": {"x": {}}}}, "unevaluatedProperties": false})",
       {R"({"x":1})"},
       {R"({"y":1})"}},
  });
}

TEST(JsonSchema, ReferencesByIdAndAnchor) {
  expect({
      {R"({"\u0024ref": "x", "$defs": {"c": {"\u0024id": "x", "type": "null"}}})", {"null"}, {"1"}},
      {R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/a/b.json", "$ref": "c.json#x", "$defs": {"c": {"$id": "c.json", "$defs": {"d": {"$anchor": "x", "type": "null"}}}}})",
       {"null"},
       {"1"}},
      {R"({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"type": "null"}}, "$ref": "#/definitions/a", "minimum": 5})",
       {"null"},
       {"7"}},
      {R"({"properties": {"a/b": {"type": "null"}, "c": {"$ref": "#/properties/a~1b"}}})",
       {R"({"c":null})"},
       {R"({"c":1})"}},
  });
}

TEST(JsonSchema, RefusalsNameTheKeyword) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"properties": {"a": {"$ref": "https://example.com/x.json"}}})", "#/properties/a/$ref: "},
      {R"({"$ref": "#/$defs/none"})", "#/$ref: "},
      {R"({"$ref": "#"})", "recursion without end"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}})",
       "recursion without end"},
      {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"], "type": "object"})",
       "no value fulfils"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", "#: no value fulfils"},
      {R"({"type": "object", "properties": {"a": {"allOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["a"]})",
       "#/properties/a: no value fulfils"},
      {"false", "no value fulfils"},
      {R"({"type": "any"})", "#/type: "},
      {R"({"pattern": "(a)\\1"})", "#/pattern: "},
      {R"({"minLength": -1})", "#/minLength: "},
      {R"({"items": {"format": "regex"}})", "#/items/format: "},
      {R"({"multipleOf": 0.123456789})", "#/multipleOf: "},
      {R"({"unevaluatedProperties": false, "anyOf": [{"properties": {"a": {}}}, {}]})",
       "#/unevaluatedProperties: "},
      {R"({"$schema": "https://example.com/mine"})", "#/$schema: "},
      {R"({"$schema": "https://example.com/?json-schema.org/draft-07/"})", "#/$schema: "},
      {R"({"$schema": 7})", "#/$schema: "},
      {R"({"$defs": {"a": {"$id": "http://a/", "$schema": "http://json-schema.org/draft-07/schema#"}}})",
       "#/$defs/a/$schema: another draft"},
      {R"({"definitions": {"a": {"id": "http://a/", "$schema": "http://json-schema.org/draft-04/schema#"}}})",
       "#/definitions/a/$schema: another draft"},
      {R"({"$ref": "http://a/b", "$defs": {"a": {"$id": "http://a/b"}, "b": {"$id": "http://a/b", "type": "null"}}})",
       "#/$ref: \"http://a/b\" may be several"},
      {R"({"$dynamicRef": "#%61", "$defs": {"a": {"$dynamicAnchor": "a"}, "b": {"$id": "b", "$dynamicAnchor": "a"}}})",
       "#/$dynamicRef: not enforced where several"},
      {R"({"format": 5})", "#/format: expected a string"},
      {R"({"$id": 3})", "#/$id: expected a string"},
      {R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [true]})",
       "#/items: expected a schema"},
      {R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "minimum": 1, "exclusiveMinimum": true})",
       "#/exclusiveMinimum: expected a number"},
      {R"({"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": 1})",
       "#/exclusiveMinimum: expected a boolean"},
      {R"({"minimum": "3"})", "#/minimum: expected a number, got a string"},
      {R"({"items": {"$id": "a/b.json", "$ref": "c.json"}})", "#/items/$id: "},
      {R"({"contentEncoding": "base64"})", "#/contentEncoding: "},
      {R"({"a": 1, "a": 2})", "given twice"},
      {"[1]", "expected a schema"},
      {"{", "not valid JSON"},
      {std::string(1000, '['), "nested deeper"},
  };
  for (const auto& [schema, message] : cases) {
    EXPECT_NE(schema_error(schema).find(message), std::string::npos)
        << schema.substr(0, 200) << ": " << schema_error(schema);
  }
}

TEST(JsonSchema, ManyKindsOfObjectsToldApartByAMember) {
  std::string kinds;
  for (int i = 0; i < 100; ++i) {
    kinds += fmt::format(
        R"({}{{"properties": {{"kind": {{"const": {}}}, "v{}": {{"type": "string"}}}}, "required": ["kind"]}})",
        i == 0 ? "" : ",", i, i);
  }
  // Nothing says that they are objects: what is none fulfils all of them, and so not just one.
  expect({{fmt::format("{{\"oneOf\": [{}]}}", kinds),
           {R"({"kind":7,"v7":"x","v8":1})", R"({"v99":"x","kind":99})"},
           {R"({"kind":7,"v7":1})", R"({"kind":100})", "{}", "1", "[]"}}});
}

TEST(JsonSchema, LimitsHold) {
  std::string names;
  for (int i = 0; i < 10'000; ++i) names += fmt::format("{}\"value {}\"", i == 0 ? "" : ",", i);
  const GrammarPtr large = compile_json_schema(fmt::format("{{\"enum\": [{}]}}", names));
  EXPECT_TRUE(accepts(large, "\"value 9999\""));
  EXPECT_FALSE(accepts(large, "\"value 10000\""));
  EXPECT_NE(schema_error(std::string(2 << 20, ' ') + "{}").find("at most"), std::string::npos);

  // Each value is any of 20 overlapping kinds but one: more combinations than there can be.
  std::string parts;
  for (int i = 0; i < 40; ++i) {
    parts += fmt::format(
        R"({}{{"oneOf": [{{"required": ["a{}"]}}, {{"required": ["b{}"]}}, {{"required": ["c{}"]}}]}})",
        i == 0 ? "" : ",", i, i, i);
  }
  CompileLimits limits;
  limits.time = std::chrono::milliseconds(300);
  EXPECT_THROW(compile_json_schema(fmt::format("{{\"allOf\": [{}]}}", parts), limits), Error);
}

TEST(JsonSchema, ManyWitnessesAreCountedOnce) {
  std::string parts;
  for (const char* part : {"minimum\": 0", "minimum\": 1", "minimum\": 2"}) {
    parts += fmt::format(R"({}{{"contains": {{"{}}}, "minContains": 300}})",
                         parts.empty() ? "" : ",", part);
  }
  std::string items = "5";
  for (int i = 1; i < 300; ++i) items += ",5";
  expect({{fmt::format(R"({{"type": "array", "allOf": [{}]}})", parts),
           {"[" + items + "]", "[1," + items + ",-1]"},
           {"[1" + items.substr(1) + "]", "[]"}},
          {R"({"type": "array", "allOf": [{"contains": {"minimum": 1}, "minContains": 2},
               {"contains": {"type": "integer"}, "maxContains": 2}]})",
           {"[1,2]", "[0,1,1.5]", "[1.5,1.5,1.5,1]"},
           {"[1,2,3]", "[1.5,1.5]", "[0,0,1.5]", "[0,1]"}}});
}

TEST(JsonSchema, NumbersBeyondComparisonAreRejected) {
  expect({{"{}", {"1e1999", "1e-2000", "0e99999", "[1e1999]"}, {"1e2001", "-1e-2002", "[1e2001]"}},
          {R"({"uniqueItems": true})", {"[1e10,10e10]"}, {"[1e5000,10e4999]", "[1e1000,10e999]"}}});
}

TEST(JsonSchema, ManySubschemasOfOneValue) {
  std::string links;
  for (int i = 0; i < 3000; ++i) {
    links += fmt::format(R"("n{}": {{"propertyNames": {{"$ref": "#/$defs/n{}"}}}},)", i, i + 1);
  }
  const std::string names =
      fmt::format(R"({{"$ref": "#/$defs/n0", "$defs": {{{}"n3000": {{"minLength": 1}}}}}})", links);
  EXPECT_NE(schema_error(names).find("within each other"), std::string::npos);

  std::string dependents;
  std::string single;
  std::string all;
  for (int i = 0; i < 5000; ++i) {
    const char* comma = i == 0 ? "" : ",";
    dependents += fmt::format(R"({}"k{}": {{"required": ["b"]}})", comma, i);
    single += fmt::format(R"({}{{"anyOf": [{{"minLength": {}}}]}})", comma, i % 50);
    all += fmt::format(R"({}{{"minLength": {}}})", comma, i);
  }
  EXPECT_THROW(compile_json_schema(fmt::format(R"({{"dependentSchemas": {{{}}}}})", dependents)),
               Error);
  expect({{fmt::format(R"({{"allOf": [{}]}})", single),
           {"1", "\"" + std::string(49, 'x') + "\""},
           {"\"x\""}},
          {fmt::format(R"({{"allOf": [{}]}})", all), {"1"}, {"\"x\""}}});
}

TEST(JsonSchema, MemoryOfAllPartsIsCounted) {
  std::string numbers;
  for (int i = 0; i < 20'000; ++i) numbers += fmt::format("{}{}e1900", i == 0 ? "" : ",", i + 1);
  CompileLimits limits;
  limits.time = std::chrono::minutes(5);  // of a sanitizer's build too
  EXPECT_NE(schema_error(fmt::format(R"({{"enum": [{}]}})", numbers), limits).find("MiB of memory"),
            std::string::npos);
  limits.memory_bytes = 4 << 20;
  std::string values = "0";
  for (int i = 0; i < 50'000; ++i) values += ",0";
  EXPECT_THROW(compile_json_schema(fmt::format(R"({{"default": [{}]}})", values), limits), Error);
}

// A NUL would end the sentence.
TEST(JsonSchema, RefusalsShowControlCharactersOfNames) {
  EXPECT_EQ(
      schema_error(R"({"properties": {"a\u0000b/\n": {"type": 7}}})"),
      "#/properties/a\\u0000b~1\\u000a/type: 7 is not a type; expected null, boolean, object, "
      "array, number, integer or string");
  const std::string of_pattern = schema_error(R"({"pattern": "x\u0000["})");
  EXPECT_NE(of_pattern.find("\"x\\u0000[\": "), std::string::npos) << of_pattern;
  const std::string of_reference =
      schema_error(R"({"$ref": "#/$defs/a%00b", "$defs": {"a\u0000b": {"minimum": "1"}}})");
  EXPECT_NE(of_reference.find("expected a number"), std::string::npos) << of_reference;
}

TEST(JsonSchema, KeywordsOfOtherDraftsAreNone) {
  expect({{R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "$recursiveRef": "#/x"})",
           {"1"},
           {}},
          {R"({"$schema": "http://json-schema.org/draft-07/schema#", "$dynamicRef": "#x"})",
           {"1"},
           {}}});
}

TEST(JsonSchema, ManyDepths) {
  const GrammarPtr any = compile_json_schema("true");
  const std::string deep = std::string(500, '[') + std::string(500, ']');
  EXPECT_TRUE(accepts(any, deep));
  EXPECT_FALSE(accepts(any, std::string(100'000, '[')));
  EXPECT_FALSE(accepts(any, std::string(10'000, '1')));
}

}  // namespace
}  // namespace quire::grammar
