#include "base/raw_json.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

std::string found(std::string_view text, std::string_view name) {
  return std::string(RawJson(text).find(name).text());
}

TEST(RawJson, FindsTheTextOfAMember) {
  const std::string_view text =
      " {\"a\" : 1.00 , \"b\":{ \"a\": [2, \"}\\\\\\\"\" ] },\"\":null, \"c\":\"a\\\"b\\\\\"} ";
  EXPECT_EQ(found(text, "a"), "1.00");
  EXPECT_EQ(found(text, "b"), R"({ "a": [2, "}\\\"" ] })");
  EXPECT_EQ(found(text, ""), "null");
  EXPECT_EQ(found(text, "c"), R"("a\"b\\")");
  EXPECT_EQ(found(text, "d"), "");
  EXPECT_EQ(RawJson(text).find("b").find("a").text(), R"([2, "}\\\"" ])");
}

TEST(RawJson, TheLastOfEqualNamesCountsHoweverTheyAreWritten) {
  EXPECT_EQ(found(R"({"ab": 1, "a\u0062": 2})", "ab"), "2");
  EXPECT_EQ(found(R"({"a\u0062": 1, "ab": 2, "abc": 3})", "ab"), "2");
  EXPECT_EQ(found(R"({"a\\": 1})", "a\\"), "1");
}

TEST(RawJson, Items) {
  const auto items = RawJson(R"([ 1e2,[ ], {"a": ","},"x]" ])").items();
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(items[0].text(), "1e2");
  EXPECT_EQ(items[1].text(), "[ ]");
  EXPECT_EQ(items[2].text(), R"({"a": ","})");
  EXPECT_EQ(items[3].text(), R"("x]")");
  EXPECT_TRUE(RawJson("[]").items().empty());
}

TEST(RawJson, AByteOrderMarkIsPassedOver) {
  EXPECT_EQ(RawJson("\xef\xbb\xbf {\"a\": [1]}").find("a").items().size(), 1u);
}

TEST(RawJson, WhatIsNotThereIsNotKnown) {
  EXPECT_FALSE(RawJson().is_known());
  EXPECT_FALSE(RawJson().find("a").is_known());
  EXPECT_FALSE(RawJson("{}").find("a").is_known());
  EXPECT_FALSE(RawJson("[{\"a\": 1}]").find("a").is_known());
  EXPECT_TRUE(RawJson(R"({"a": 1})").items().empty());
}

TEST(RawJson, TextsThatEndEarlyAreReadWithinTheirBounds) {
  const std::string whole = R"({"a": [1, {"b\"": "c"}], "d": "e\\"})";
  for (size_t size = 0; size <= whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    for (const char* name : {"a", "d"}) {
      RawJson(cut).find(name).items();
    }
  }
}

}  // namespace
}  // namespace quire
