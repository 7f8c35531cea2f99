// What schemas cost whose choices multiply, and what is refused of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/sanitized_test_util.h"
#include "grammar/grammar.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

struct LimitsCase {
  std::string schema;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

CompileLimits without_clock() {
  CompileLimits limits;
  limits.time = std::chrono::minutes(10);  // on a slow machine, under a sanitizer
  return limits;
}

void expect_values(const std::vector<LimitsCase>& cases) {
  for (const LimitsCase& one : cases) {
    GrammarPtr grammar;
    ASSERT_NO_THROW(grammar = compile_json_schema(one.schema, without_clock())) << one.schema;
    for (const std::string& text : one.accepted) {
      EXPECT_TRUE(accepts(grammar, text)) << one.schema << " on " << text;
    }
    for (const std::string& text : one.rejected) {
      EXPECT_FALSE(accepts(grammar, text)) << one.schema << " on " << text;
    }
  }
}

std::string schema_refusal(const std::string& schema, const CompileLimits& limits) {
  try {
    compile_json_schema(schema, limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Each part once, though there are 2^60 ways to it.
TEST(SchemaLimits, ChoicesBetweenSchemasWithManyWaysToOnePart) {
  std::string parts;
  for (int i = 0; i < 60; ++i) {
    parts += fmt::format(
        R"("a{0}": {{"allOf": [{{"$ref": "#/$defs/a{1}"}}, {{"$ref": "#/$defs/a{1}"}}]}},)", i,
        i + 1);
  }
  expect_values(
      {{fmt::format(R"({{"oneOf": [{{"$ref": "#/$defs/a0"}}, {{"type": "null"}}], "$defs": {{{}
               "a60": {{"type": "object", "required": ["k"], "properties": {{"k": {{"const": 1}}}}}}}}}})",
                    parts),
        {R"({"k": 1})", "null"},
        {R"({"k": 2})", "{}", "1"}}});
}

TEST(SchemaLimits, MemoryOfChoicesIsCounted) {
  CompileLimits limits = without_clock();
  limits.memory_bytes = 16 << 20;
  std::string names;
  std::string members;
  std::string options;
  std::string conditions;
  for (int i = 0; i < 1000; ++i) {
    const char* comma = i == 0 ? "" : ",";
    names += fmt::format(R"({}"m{}")", comma, i);
    members += fmt::format(R"({}"m{}": {{"const": "x"}})", comma, i);
    options += fmt::format(R"({}{{"type": "object", "$ref": "#/$defs/d", "required": ["k"],
                                  "properties": {{"k": {{"const": {}}}}}}})",
                           comma, i);
  }
  // A thousand tags of each option.
  EXPECT_NE(schema_refusal(fmt::format(R"({{"type": "string", "oneOf": [{}], "$defs": {{
                "d": {{"required": [{}], "properties": {{{}}}}}}}}})",
                                       options, names, members),
                           limits)
                .find("MiB of memory"),
            std::string::npos);
  // What each of the values leads to: what all conditions but one do.
  for (int i = 0; i < 1900; ++i) {
    conditions += fmt::format(R"({}{{"if": {{"properties": {{"t": {{"const": {}}}}}}},
                                     "else": {{"minLength": {}}}}})",
                              i == 0 ? "" : ",", i, i);
  }
  const std::string schema = fmt::format(R"({{"type": "string", "allOf": [{}]}})", conditions);
  EXPECT_NE(schema_refusal(schema, limits).find("MiB of memory"), std::string::npos);
  limits.memory_bytes = 256 << 20;
  EXPECT_EQ(schema_refusal(schema, limits), "");
}

// Each choice within others has a copy of what is asked until there.
TEST(SchemaLimits, MemoryOfNamesIsCounted) {
  std::string choices;
  for (int i = 0; i < 300; ++i) {
    choices +=
        fmt::format(R"(, {{"anyOf": [{{"minProperties": {0}}}, {{"maxProperties": {0}}}]}})", i);
  }
  CompileLimits limits = without_clock();
  limits.memory_bytes = 16 << 20;
  const std::string refusal =
      schema_refusal(fmt::format(R"({{"type": "object", "allOf": [{{"required": ["{}"]}}{}]}})",
                                 std::string(100'000, 'n'), choices),
                     limits);
  EXPECT_NE(refusal.find("MiB of memory"), std::string::npos) << refusal;
}

TEST(SchemaLimits, ManyConditionsOnAMember) {
  const auto conditions = [](int count, std::string_view format) {
    std::string list;
    for (int i = 0; i < count; ++i) {
      list += (i == 0 ? "" : ",") + fmt::format(fmt::runtime(format), i);
    }
    return fmt::format(R"({{"allOf": [{}]}})", list);
  };
  const std::string many =
      conditions(2001, R"({{"if": {{"properties": {{"t": {{"const": {}}}}}}}, "else": {{}}}})");
  EXPECT_NE(schema_refusal(many, without_clock()).find("more than 2000 values apart"),
            std::string::npos);
  // Values of another type, and others of the same, are told apart once, not for each condition.
  expect_values(
      {{conditions(30, R"({{"if": {{"properties": {{"t": {{"type": "string", "const": "k{0}"}}}}}},
                               "then": {{"required": ["r{0}"]}}}})"),
        {R"({"t": "k7", "r7": 1})", R"({"t": "x"})", R"({"t": 1})", "1"},
        {R"({"t": "k7"})", R"({"t": "k7", "r8": 1})", "{}"}},
       {R"({"not": {"type": ["string", "number"], "enum": ["a", 1, null]}})",
        {R"("b")", "2", "null", "[]"},
        {R"("a")", "1", "1.0"}}});
}

// What a later choice asks of a member that was looked at before.
TEST(SchemaLimits, MembersThatLaterChoicesContradict) {
  expect_values(
      {{R"({"type": "object", "required": ["t", "u"], "properties": {"t": {"type": "string"}},
               "allOf": [
                 {"anyOf": [{"properties": {"t": {"type": "number"}}}, {"required": ["a"]},
                            {"properties": {"u": false}}]},
                 {"anyOf": [{"not": {"required": ["u"]}}, {"required": ["b"]},
                            {"additionalProperties": {"type": "null"}}]},
                 {"anyOf": [{"not": {"properties": {"t": {"const": "x"}}}}, {"required": ["c"]}]}]})",
        {R"({"t": "y", "u": 1, "a": 1, "b": 1})", R"({"t": "x", "u": 1, "a": 1, "b": 1, "c": 1})"},
        {R"({"t": "y", "u": 1, "b": 1})", R"({"t": "y", "u": 1, "a": 1})",
         R"({"t": "x", "u": 1, "a": 1, "b": 1})", R"({"t": null, "u": null, "a": null})",
         R"({"t": "y", "a": 1, "b": 1})"}}});
}

// The most memory of the process since forget_peak(). /proc/self/status has it in kB.
int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) << 10;
  }
  return 0;
}
bool forget_peak() {
  return static_cast<bool>(std::ofstream("/proc/self/clear_refs") << "5" << std::flush);
}

TEST(SchemaLimits, TakeNoMoreMemoryThanTheySay) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  std::string properties;
  std::string nested;
  std::string of_all;
  std::string references;
  for (int i = 0; i < 2000; ++i) {
    const char* const comma = i == 0 ? "" : ", ";
    if (i < 20) {
      of_all += fmt::format(R"({}"k{}": {{"type": "string", "minLength": {}}})", comma, i, i);
    }
    if (i < 40) {
      nested += fmt::format(R"({}{{"type": "object", "required": ["k{}"],
                                  "properties": {{"k{}": {{"$ref": "#/$defs/a"}}}}}})",
                            comma, i, i);
    }
    properties += fmt::format(R"({}"p{}": {{"$ref": "#/$defs/a"}})", comma, i);
    references += fmt::format(R"({}{{"$ref": "#/$defs/a"}})", comma);
  }
  const std::string schemas[] = {
      R"({"$defs": {"a": {"oneOf": [)" + nested + R"(]}}, "properties": {)" + properties + "}}",
      R"({"$defs": {"a": {"type": "object", "properties": {)" + of_all + R"(}}}, "oneOf": [)" +
          references + "]}",
  };
  CompileLimits limits;
  limits.time = std::chrono::minutes(10);
  limits.memory_bytes = size_t{60} << 20;
  for (const std::string& schema : schemas) {
    malloc_trim(0);  // what the schema before has left
    if (!forget_peak()) GTEST_SKIP() << "the system does not let it forget the peak";
    const int64_t before = peak_resident_bytes();
    ASSERT_GT(before, 0);
    try {
      compile_json_schema(schema, limits);
      ADD_FAILURE() << "the schema was meant to take more memory";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("takes more than 60 MiB of memory"));
    }
    EXPECT_LE(peak_resident_bytes() - before, static_cast<int64_t>(limits.memory_bytes));
  }
}

}  // namespace
}  // namespace quire::grammar
