#include "base/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

std::string message_of(std::string_view text, const JsonLimits& limits = {}) {
  try {
    parse_json_text(text, limits);
  } catch (const JsonError& error) {
    return error.what();
  }
  return "";
}

std::optional<std::size_t> offset_of(std::string_view text) {
  try {
    parse_json_text(text, {});
  } catch (const JsonError& error) {
    return error.offset();
  }
  return std::nullopt;
}

TEST(JsonText, ReadsWhatTheLibraryReads) {
  for (const char* text :
       {"null", "true", "-1", "18446744073709551615", "1.5e3", "\"\\u00e9\\ud83d\\ude00\"", "[]",
        "{}", R"({"b":[1,{"a":[]},null],"a":{"c":false},"":"x"})", " [ 1 , 2 ] "}) {
    EXPECT_EQ(parse_json_text(text, {}).dump(), Json::parse(text).dump()) << text;
  }
}

TEST(JsonText, SaysWhereItStopsBeingJson) {
  EXPECT_EQ(offset_of(R"({"a": tru})"), 9u);
  EXPECT_EQ(offset_of(R"({"a": 1)"), 7u);
  EXPECT_EQ(offset_of(""), 0u);
  EXPECT_EQ(offset_of(std::string_view("[1]\0[2]", 7)), 3u);
  EXPECT_TRUE(message_of("[1] 2").starts_with("not valid JSON: "));
}

TEST(JsonText, RefusesTextThatIsNoUnicode) {
  EXPECT_NE(message_of("\"\xff\""), "");
  EXPECT_NE(message_of("\"\xed\xa0\x80\""), "");  // a surrogate, written out
  EXPECT_NE(message_of(R"("\ud800")"), "");
  EXPECT_NE(message_of(R"("\udc00x")"), "");
  EXPECT_NE(message_of(R"("\ud800\u0041")"), "");
}

TEST(JsonText, RefusesNumbersThatNoDoubleHolds) {
  EXPECT_NE(message_of("1e999"), "");
  EXPECT_NE(message_of("[-1e999]"), "");
  EXPECT_NE(message_of("NaN"), "");
  EXPECT_NE(message_of("Infinity"), "");
  EXPECT_EQ(parse_json_text("1" + std::string(300, '0'), {}).is_number_float(), true);
}

TEST(JsonText, BoundsDepthAndNumberOfValues) {
  EXPECT_EQ(message_of("[[[]]]", {.max_depth = 3}), "");
  EXPECT_EQ(message_of("[[[]]]", {.max_depth = 2}), "the JSON is nested deeper than 2 levels");
  EXPECT_EQ(message_of("[1,2]", {.max_values = 3}), "");
  EXPECT_EQ(message_of("[1,2]", {.max_values = 2}), "the JSON holds more than 2 values");
  EXPECT_NE(message_of(std::string(1'000'000, '[')), "");
}

TEST(JsonText, RepeatedKeysAreRefusedOrTheLastCounts) {
  EXPECT_EQ(message_of(R"({"a":1,"a":2})"), R"(the field "a" is given twice)");
  const JsonLimits last{.allow_repeated_keys = true};
  EXPECT_EQ(parse_json_text(R"({"a":[1,2],"b":0,"a":{"c":3}})", last).dump(),
            R"({"a":{"c":3},"b":0})");
}

TEST(JsonText, AnObjectIsAskedForByName) {
  const auto refusal = [](std::string_view text) -> std::string {
    try {
      parse_json_object(text, "config.json", {.max_depth = 2});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(R"({"a": []})"), "");
  EXPECT_EQ(refusal("[1]"), "config.json: expected a JSON object, got an array");
  EXPECT_EQ(refusal("false"), "config.json: expected a JSON object, got false");
  EXPECT_EQ(refusal(R"({"a":1,"a":2})"), R"(config.json: the field "a" is given twice)");
  EXPECT_EQ(refusal(R"({"a":[[]]})"), "config.json: the JSON is nested deeper than 2 levels");
}

TEST(JsonText, ManyKeysStayLinear) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i)
    text += "\"" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  const Json all = parse_json_text(text + "\"last\":1}", {});
  EXPECT_EQ(all.size(), 200'001u);
  EXPECT_EQ(message_of(text + "\"7\":1}"), R"(the field "7" is given twice)");
}

TEST(JsonText, LongTokensDoNotMakeLongMessages) {
  EXPECT_LT(message_of("[\"" + std::string(100'000, 'a')).size(), 400u);
}

TEST(ClearJson, EmptiesWhatAValueHolds) {
  Json value = parse_json_text(R"({"a": [1, [2, {"b": "c"}], {}], "d": null})", {});
  Json copy = 7;
  copy_json(value, copy);
  EXPECT_EQ(copy.dump(), value.dump());
  clear_json(value);
  EXPECT_TRUE(value.is_null());
  {
    const JsonClearer clearer(copy);
    EXPECT_EQ(copy["a"].size(), 3U);
  }
  EXPECT_TRUE(copy.is_null());
}

}  // namespace
}  // namespace quire
