// Numbers, strings with lengths and arrays without repeats, as they are generated.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/tokens/json_language.h"
#include "grammar/tokens/json_language_test_util.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

TEST(JsonValuesTest, WritesArraysWithoutRepeats) {
  const LanguagePtr integers = make_language(compile_json_schema(
      R"({"type": "array", "uniqueItems": true, "items": {"type": "integer", "minimum": 0, "maximum": 300}})"));
  EXPECT_TRUE(generates(integers, "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]"));
  EXPECT_FALSE(generates(integers, "[0, 10, 0]"));
  // As readers have them: 1.0000000000000000001 is read as 1.
  const LanguagePtr any =
      make_language(compile_json_schema(R"({"type": "array", "uniqueItems": true})"));
  EXPECT_TRUE(generates(any, "[0, -1, -1.000000000000001, 1e1, 9007199254740993]"));
  EXPECT_FALSE(generates(any, "[0, -1, -1.0000000000000000001]"));
  EXPECT_FALSE(generates(any, "[9007199254740992, 9007199254740993.0]"));
  EXPECT_TRUE(generates(any, "[9007199254740992, 9007199254740993]"));
  EXPECT_FALSE(generates(any, "[0.1, [1], 0.10000000000000000001]"));
  const LanguagePtr objects = make_language(compile_json_schema(
      R"({"type": "array", "uniqueItems": true, "items": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": [1, 2]}}, "required": ["a", "b"], "additionalProperties": false}})"));
  EXPECT_TRUE(generates(objects, R"([{"a": 0, "b": 1}, {"b": 2, "a": 0}, {"a": 12, "b": 1}])"));
  EXPECT_FALSE(generates(objects, R"([{"a": 0, "b": 1}, {"b": 1, "a": 0}])"));
}

// An upper limit is counted, whatever it is; a lower one takes states.
TEST(JsonValuesTest, LimitsTheLengthsOfPatterns) {
  const LanguagePtr wide = make_language(compile_json_schema(
      R"({"type": "string", "pattern": "^(ab)*c?$", "minLength": 3, "maxLength": 1000000})"));
  EXPECT_TRUE(generates(wide, R"("abc")"));
  EXPECT_TRUE(generates(wide, R"("ababababab")"));
  EXPECT_FALSE(generates(wide, R"("ab")"));
  const LanguagePtr narrow = make_language(compile_json_schema(
      R"({"type": "string", "pattern": "^(ab)*c?$", "minLength": 3, "maxLength": 4})"));
  EXPECT_TRUE(generates(narrow, R"("abc")"));
  EXPECT_TRUE(generates(narrow, R"("abab")"));
  EXPECT_FALSE(generates(narrow, R"("c")"));
  EXPECT_FALSE(generates(narrow, R"("ababc")"));
  EXPECT_THROW(make_language(compile_json_schema(
                   R"({"type": "string", "pattern": "^(ab)*c?$", "minLength": 2500})")),
               Error);
}

// Behind a number that had to go on another way than the shortest, the ending is another one.
TEST(JsonValuesTest, KnowsTheEndingBehindANumberThatIsNew) {
  const LanguagePtr language = make_language(compile_json_schema(
      R"({"type": "array", "uniqueItems": true, "items": {"type": "array", "prefixItems": [{"type": "number", "not": {"type": "integer"}}], "items": {"type": "array"}}})"));
  const auto matcher = language->begin();
  for (const char c : std::string_view("[[0.1],[1.1],[1.1,")) {
    ASSERT_TRUE(matcher->push(static_cast<uint8_t>(c))) << c;
  }
  const std::string ending = matcher->ending();
  EXPECT_LE(ending.size(), matcher->ending_bytes());
  for (const char c : ending) ASSERT_TRUE(matcher->push(static_cast<uint8_t>(c))) << ending;
  EXPECT_TRUE(matcher->can_end());
}

// There are three strings of one of these letters, though the pattern has more texts.
TEST(JsonValuesTest, RefusesMoreItemsThanThereAreOfALength) {
  const auto language = [](std::string_view items) {
    return make_language(compile_json_schema(
        R"({"type": "array", "uniqueItems": true, "minItems": )" + std::string(items) +
        R"(, "items": {"type": "string", "pattern": "^[a-c]+$", "maxLength": 1}})"));
  };
  EXPECT_TRUE(generates(language("3"), R"(["b","a","c"])"));
  EXPECT_THROW(language("4"), Error);
}

// What each place promises stays open: the way to its shortest ending, byte by byte.
TEST(JsonValuesTest, ItemsThatHaveToDifferAreFoundInAllCharacters) {
  const LanguagePtr language = make_language(compile_json_schema(
      R"({"type": "array", "uniqueItems": true, "minItems": 4, "items": {"type": "string", "maxLength": 3, "pattern": "^(ab|\u00e9)*$"}})"));
  const auto matcher = language->begin();
  for (const char c : std::string_view(R"(["","ab",)")) {
    ASSERT_TRUE(matcher->push(static_cast<uint8_t>(c))) << c;
  }
  const std::string ending = matcher->ending();
  for (const char c : ending) ASSERT_TRUE(matcher->push(static_cast<uint8_t>(c))) << ending;
  EXPECT_TRUE(matcher->can_end());
}

// Read together, arrays with repeats and without are written as the shorter of the two.
TEST(JsonValuesTest, PromisesTheShorterOfArraysWithRepeatsAndWithout) {
  const auto ending_of = [](std::string_view schema) {
    const LanguagePtr language = make_language(compile_json_schema(schema));
    const auto matcher = language->begin();
    const std::string ending = matcher->ending();
    for (const char c : ending) EXPECT_TRUE(matcher->push(static_cast<uint8_t>(c))) << ending;
    EXPECT_TRUE(matcher->can_end());
    return ending;
  };
  EXPECT_EQ(
      ending_of(
          R"({"anyOf": [{"type": "array", "uniqueItems": true, "minItems": 3, "items": {"type": "string"}}, {"type": "array", "minItems": 2, "items": {"type": "array"}}]})"),
      "[[],[]]");
  EXPECT_EQ(
      ending_of(
          R"({"anyOf": [{"type": "array", "uniqueItems": true, "minItems": 1, "items": {"enum": [1, 2]}}, {"type": "array", "minItems": 2, "items": {"type": "array"}}]})"),
      "[1]");
  // Equally long ones.
  EXPECT_EQ(
      ending_of(
          R"({"anyOf": [{"type": "array", "minItems": 2, "items": {"type": "array"}}, {"type": "array", "uniqueItems": true, "minItems": 2, "items": {"enum": [10, 20]}}]})"),
      "[[],[]]");
  EXPECT_EQ(
      ending_of(
          R"({"anyOf": [{"type": "array", "uniqueItems": true, "minItems": 2, "items": {"enum": [10, 20]}}, {"type": "array", "minItems": 2, "items": {"type": "array"}}]})"),
      "[10,20]");
}

// A token that begins another item is tried, as the way to an end may be shorter than is assumed.
TEST(JsonValuesTest, HaveWhatEndsJustInTimeWithoutRepeats) {
  const LanguagePtr language = make_language(compile_json_schema(
      R"({"type": "array", "uniqueItems": true, "minItems": 4, "items": {"type": "string", "maxLength": 2}})"));
  const TokenTrie trie({"\"", "\",", "\",\"", "a", "b", "c", ",", "]", "["});
  const auto matcher = language->begin();
  for (const char c : std::string_view("[\"a\",\"b\",\"")) {
    ASSERT_TRUE(matcher->push(static_cast<uint8_t>(c)));
  }
  for (size_t most = 0; most < 12; ++most) {
    std::vector<uint32_t> mask(mask_words(trie.num_tokens()));
    std::vector<uint32_t> expected(mask.size());
    matcher->allow_tokens(trie, most, mask);
    matcher->ByteMatcher::allow_tokens(trie, most, expected);
    // The token that closes the string and begins another item, and that which does that twice.
    for (const int32_t token : {1, 2}) {
      EXPECT_EQ(is_allowed(mask, token), is_allowed(expected, token))
          << trie.bytes(token) << " in " << most;
    }
  }
}

TEST(JsonValuesTest, WritesIntegersWithoutAPoint) {
  const LanguagePtr integers = make_language(compile_json_schema(R"({"type": "integer"})"));
  EXPECT_TRUE(generates(integers, "-120"));
  EXPECT_FALSE(generates(integers, "1.0"));
  const LanguagePtr halves = make_language(compile_json_schema(R"({"multipleOf": 0.5})"));
  EXPECT_TRUE(generates(halves, "1.5"));
  EXPECT_TRUE(generates(halves, "1.0"));
  EXPECT_FALSE(generates(halves, "1.2"));
  const LanguagePtr any = make_language(compile_json_schema(R"({"type": "number"})"));
  EXPECT_TRUE(generates(any, "1.0e-12"));
  EXPECT_FALSE(generates(any, "1e123"));
}

// A double tells numbers of 15 digits apart: what is read as one follows the schema, too.
TEST(JsonValuesTest, WritesNoMoreDigitsThanADoubleHas) {
  const auto language = [](const char* schema) {
    return make_language(compile_json_schema(schema));
  };
  const LanguagePtr above =
      language(R"({"type": "number", "exclusiveMinimum": 3, "maximum": 1e20})");
  EXPECT_TRUE(generates(above, "3.00000000000001"));
  EXPECT_FALSE(generates(above, "3.000000000000001"));
  EXPECT_FALSE(generates(above, "3.0000000000000000844444200000"));
  EXPECT_TRUE(generates(above, "12345678901234.5"));
  EXPECT_FALSE(generates(above, "123456789012345.5"));
  EXPECT_TRUE(generates(above, "12345678901234567891"));
  const LanguagePtr near_zero = language(R"({"type": "number", "minimum": -1, "maximum": 1})");
  EXPECT_TRUE(generates(near_zero, "0.000000000000000000012345"));
  EXPECT_FALSE(generates(near_zero, "0.00000000000000000001234567890123456"));
  EXPECT_FALSE(generates(near_zero, "-0.1234567890123456"));
  // Neither of these is an integer, so a long one has no way on.
  const LanguagePtr fractions =
      language(R"({"oneOf": [{"type": "integer"}, {"type": "number", "multipleOf": 0.5}]})");
  EXPECT_TRUE(generates(fractions, "12345678901234.5"));
  EXPECT_FALSE(generates(fractions, "123456789012345.5"));
  EXPECT_FALSE(generates(fractions, "12345678901234567890.5"));
  // Where the schema gives more digits or leaves no others, they are written.
  const LanguagePtr listed = language(R"({"enum": [1, 0.30000000000000004, 0.3]})");
  EXPECT_TRUE(generates(listed, "0.30000000000000004"));
  const LanguagePtr narrow = language(
      R"({"type": "number", "exclusiveMinimum": 1234567890123456.5, "maximum": 1234567890123456.75})");
  EXPECT_TRUE(generates(narrow, "1234567890123456.6"));
  // A promised ending, though an integer is farther away.
  const LanguagePtr steps =
      language(R"({"type": "number", "multipleOf": 25.5, "not": {"multipleOf": 255}})");
  const auto matcher = steps->begin();
  for (const char c : std::string_view("1234567890123457")) {
    ASSERT_TRUE(matcher->push(static_cast<uint8_t>(c)));
  }
  const std::string ending = matcher->ending();
  for (const char c : ending) ASSERT_TRUE(matcher->push(static_cast<uint8_t>(c))) << ending;
  EXPECT_TRUE(matcher->can_end());
  EXPECT_FALSE(generates(narrow, "1234567890123456.61"));
}

}  // namespace
}  // namespace quire::grammar
