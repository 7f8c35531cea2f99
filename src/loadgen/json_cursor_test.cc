#include "loadgen/json_cursor.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace quire::loadgen {
namespace {

bool is_json(std::string_view text) {
  JsonCursor cursor(text);
  return cursor.skip_value() && cursor.at_end();
}

std::string unescaped(std::string_view json) {
  JsonCursor cursor(json);
  std::string_view raw;
  EXPECT_TRUE(cursor.read_raw_string(raw)) << json;
  std::string text;
  append_unescaped(raw, text);
  return text;
}

TEST(JsonCursor, TakesWhatIsJson) {
  for (const char* text : {"{}", "[]", " [ 1 , -0.5e+3, 0, 1E2 ] ", "{\"a\":{\"b\":[null,true]}}",
                           "false", "\"\\u12aB\\n\\\"\"", "\"\"", "-0"}) {
    EXPECT_TRUE(is_json(text)) << text;
  }
}

TEST(JsonCursor, RefusesWhatIsNot) {
  for (const char* text :
       {"",     " ",     "{",  "}",      "{\"a\"}", "{\"a\":}",    "{\"a\":1,}", "{a:1}",
        "[1,]", "[1 2]", "01", "+1",     "1.",      ".5",          "1e",         "-",
        "nul",  "tru",   "\"", "\"\\\"", "\"\\x\"", "\"\\u12g4\"", "\"\\u12",    "\"\n\"",
        "1 1",  "{} x",  "]"}) {
    EXPECT_FALSE(is_json(text)) << text;
  }
}

TEST(JsonCursor, AgreesWithAnotherParserOnDamagedJson) {
  const std::string good = R"({"a":[1,-2.5e3,{"b":"x\u00e9\"y"},null,true],"c":"d","e":{}})";
  const std::string replacements = "{}[]\",:\\u0e-1. \tnx";
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (unsigned i = 0, count = 1 + random() % 3; i < count; ++i) {
      text[random() % text.size()] = replacements[random() % replacements.size()];
    }
    // The other parser also refuses halves of surrogate pairs, which are text here.
    const bool surrogate = text.find("\\ud") != std::string::npos;
    if (!surrogate) {
      EXPECT_EQ(is_json(text), nlohmann::json::accept(text)) << text;
    }
  }
}

TEST(JsonCursor, BoundsDepth) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(is_json(nested(JsonCursor::kMaxDepth)));
  EXPECT_FALSE(is_json(nested(JsonCursor::kMaxDepth + 1)));
  EXPECT_FALSE(is_json(std::string(1000000, '[')));
  EXPECT_TRUE(is_json("[" + nested(JsonCursor::kMaxDepth - 1) + "," +
                      nested(JsonCursor::kMaxDepth - 1) + "]"));
}

TEST(JsonCursor, ReadsIntegersThatFit) {
  const auto read = [](std::string_view text) {
    int64_t value = 7;
    return JsonCursor(text).read_integer(value) ? value : -999;
  };
  EXPECT_EQ(read(" 42"), 42);
  EXPECT_EQ(read("-1"), -1);
  EXPECT_EQ(read("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(read("9223372036854775808"), -999);
  EXPECT_EQ(read("1.0"), -999);
  EXPECT_EQ(read("\"1\""), -999);
}

TEST(JsonCursor, Unescapes) {
  EXPECT_EQ(unescaped(R"("plain")"), "plain");
  EXPECT_EQ(unescaped(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(unescaped(R"("\u0041\u00e9\u20ac")"), "A\u00e9\u20ac");
  EXPECT_EQ(unescaped(R"("\ud83d\ude00!")"), "\U0001F600!");
}

TEST(JsonCursor, HalvesOfSurrogatePairsBecomeReplacementCharacters) {
  EXPECT_EQ(unescaped(R"("\ud83d")"), "\ufffd");
  EXPECT_EQ(unescaped(R"("\ude00x")"), "\ufffdx");
  EXPECT_EQ(unescaped(R"("\ud83d\u0041")"), "\ufffdA");
  EXPECT_EQ(unescaped(R"("\ud83d\n")"), "\ufffd\n");
  EXPECT_EQ(unescaped(R"("\ud83d\ud83d\ude00")"), "\ufffd\U0001F600");
}

}  // namespace
}  // namespace quire::loadgen
