#include "grammar/tokens/json_language.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "grammar/tokens/constraint.h"
#include "grammar/tokens/json_language_test_util.h"
#include "grammar/tokens/json_token_matcher.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

constexpr const char* kSchemas[] = {
    R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"], "additionalProperties": false})",
    R"({})",
    R"({"type": "object"})",
    R"({"type": "array", "items": {"enum": ["x", 1, null]}, "minItems": 2, "maxItems": 4})",
    R"({"type": "string", "pattern": "^[a-c]{2,5}$", "maxLength": 3})",
    R"({"type": "string", "minLength": 3, "maxLength": 5})",
    R"({"type": "string", "pattern": "^(\\u00e9|ab|\n)*c$", "maxLength": 6})",
    R"({"type": "number", "minimum": 1.5, "maximum": 20})",
    R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"]}, {"type": "object", "properties": {"kind": {"const": "b"}, "s": {"type": "string"}}, "required": ["kind"]}]})",
    R"({"type": "object", "patternProperties": {"^x_": {"type": "boolean"}}, "additionalProperties": false, "minProperties": 2, "maxProperties": 3})",
    R"({"type": "object", "patternProperties": {"^[ab]$": {"type": "integer"}}, "additionalProperties": false})",
    R"({"type": "array", "contains": {"type": "string"}, "items": {"type": ["string", "integer"]}, "maxItems": 3})",
    R"({"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/t"}}, "required": ["v"], "additionalProperties": false}}})",
    R"({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "dependentRequired": {"a": ["b"], "b": ["c"]}, "maxProperties": 3})",
    R"({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": {"type": "string", "format": "date"}, "minItems": 1}]})",
    R"({"type": "string", "format": "date-time"})",
    R"({"type": "array", "uniqueItems": true, "items": {"enum": ["red", "blue", "rose", 1, 10, null]}, "minItems": 2})",
    R"({"type": "array", "uniqueItems": true, "items": {"type": "string", "maxLength": 2}, "minItems": 3})",
    R"({"type": "array", "uniqueItems": true, "items": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}})",
    R"({"type": "object", "properties": {"na me": {"type": "object", "patternProperties": {"^a": {"type": "number"}, "^.{2,6}$": {"const": {}}}, "minProperties": 1}}, "allOf": [{"required": ["na me"]}]})",
    R"({"type": "object", "patternProperties": {"^a": {"type": "number"}, "^.{2}$": {"const": {}}}, "minProperties": 2})",
    R"({"patternProperties": {"^x": {"type": "integer", "minimum": 1e99}}, "minProperties": 1})",
    R"({"patternProperties": {"^[ab]": {"type": "integer", "minimum": 1e50}, "^c": false}})",
    R"({"type": "array", "minItems": 2, "anyOf": [{"uniqueItems": true}, {}]})",
    R"({"type": "array", "uniqueItems": true, "if": {"maxItems": 2}, "then": {"items": {"type": "string", "pattern": "^[ab]*$", "maxLength": 1}}, "else": {"items": {"type": "null"}}})",
    R"({"if": {"additionalProperties": {"type": "object"}}, "then": {"allOf": [{"not": {}}]}, "else": {"$ref": "#/$defs/A"}, "$defs": {"A": {"properties": {"\u00e9": {}}, "propertyNames": {"enum": ["b", "new\nline"]}}}})",
    R"({"type": "object", "patternProperties": {"\\d": {"type": "array", "items": {"type": "array"}, "minItems": 2, "uniqueItems": true}}, "minProperties": 3})",
    R"({"type": "array", "uniqueItems": true, "items": {"type": "integer", "minimum": 0, "maximum": 300}})",
    R"({"type": "array", "uniqueItems": true, "items": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": [1, 2]}}, "required": ["a", "b"], "additionalProperties": false}})",
    R"({"type": "object", "properties": {"\u65e5\u672c": {"type": "boolean"}}, "required": ["\u65e5\u672c"], "additionalProperties": {"type": "null"}, "minProperties": 1, "maxProperties": 3, "dependentRequired": {"\u65e5\u672c": ["q\"uote", "$ref"]}})",
    R"({"type": "object", "propertyNames": {"enum": ["$ref", "\u00e9", "e\u0301", "\u2028"]}})",
    R"q({"type": "object", "properties": {"na me": {"type": "object", "properties": {"/sl~ash": {}, "A": {"type": "boolean"}, "$ref": {"type": "null"}}, "minProperties": 3, "maxProperties": 7, "if": {"properties": {"$ref": {"type": "string", "pattern": "\\bcat\\b"}}}, "then": {"patternProperties": {"^[A-Z][a-z]{1,5}$": {"type": ["null", "number"]}}}, "else": {"properties": {"A": {}}}}, "x-1": {"type": "object", "properties": {"": {"type": "boolean"}, "word": {"const": [[true, -1], {"\u2028": null, "b": 1000.0}]}, "\u00e9": {"enum": [255, "\u65e5\u672c\u8a9e", "\t", -100]}}, "required": ["word"], "maxProperties": 2}, "$ref": true}, "required": ["x-1", "na me"], "propertyNames": {"type": "string", "pattern": "^[^\"\\\\]*$", "minLength": 1, "maxLength": 11}})q",
    R"({"type": "object", "not": {"required": ["bad"]}, "propertyNames": {"maxLength": 4}})",
    R"({"type": "object", "properties": {"quo\"te\\": {"type": "null"}}, "required": ["quo\"te\\"]})",
    R"({"type": "string", "pattern": "^\\u0001\"\\\\$"})",
    R"({"type": "string", "pattern": "^[a-z]+( [a-z\"]+)*$", "maxLength": 7})",
    R"({"type": "array", "items": {"type": "string", "pattern": "[0-9a\n\u00e9]", "maxLength": 6}})",
    R"({"anyOf": [{"type": "string", "pattern": "^[a-e]+$", "maxLength": 4}, {"type": "string", "maxLength": 2}, {"type": "string", "minLength": 6, "maxLength": 9}]})",
    R"({"type": "array", "items": {"oneOf": [{"type": "string", "minLength": 2, "maxLength": 3}, {"type": "string", "minLength": 5}, {"type": "object", "required": ["a"]}]}})",
    R"({"type": "array", "uniqueItems": true, "items": {"type": "array", "uniqueItems": true, "items": {"type": "string", "maxLength": 2}}})",
    R"({"type": "array", "uniqueItems": true, "items": {"type": "array", "uniqueItems": true, "minItems": 1, "items": {"type": ["string", "integer", "object"]}}})",
    R"({"type": "array", "uniqueItems": true, "items": {"type": "object", "properties": {"k": {"type": "string", "maxLength": 2}, "l": {"type": "array", "uniqueItems": true}}, "required": ["k"]}})",
    R"({"type": "array", "uniqueItems": true, "minItems": 2, "items": {"type": "string", "pattern": "^[ab]+$", "maxLength": 3}})",
    R"({"type": "array", "uniqueItems": true, "items": {"type": "string", "pattern": "^[ab\n]+$", "maxLength": 2}})",
    R"({"type": "array", "uniqueItems": true, "items": {"type": "array", "uniqueItems": true, "minItems": 1, "items": {"type": "string", "pattern": "^(a[\nb]?|1+)$", "maxLength": 2}}})",
    R"({"type": "object", "required": ["y"], "properties": {"x": {"items": {"uniqueItems": true}}, "y": {"type": "array", "contains": {}, "minContains": 2}}})",
    R"({"oneOf": [{"not": {"required": ["a", "ab"]}}, {"allOf": [{"not": {"required": ["a"]}}, {"not": {"required": ["ab"]}}]}]})",
    R"({"oneOf": [{"patternProperties": {"a": {"$ref": "#/$defs/i"}}, "not": {"patternProperties": {"a": {"not": {"$ref": "#/$defs/i"}}}}}, {"patternProperties": {"b": {"type": "object", "patternProperties": {"c": {"type": "string"}}}}}], "$defs": {"i": {"type": "object", "not": {"patternProperties": {"c": {"not": {"type": "string"}}}}}}})",
    R"({"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b": {"type": ["string", "integer"]}, "_$": {"enum": [1, "a", {}]}}, "additionalProperties": {"type": "object", "patternProperties": {"x": {"type": "null"}}}})",
    R"({"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b": {"type": "string"}}, "properties": {"ab": {"type": "null"}, "a\"": {}}, "dependentRequired": {"kind": ["ab"], "a": ["bad"]}, "additionalProperties": false})",
    R"({"type": "array", "uniqueItems": true, "items": {"type": "object", "patternProperties": {"a": {"enum": [1, 2]}, "^[bx]*$": {"type": "string"}}}})",
    R"({"type": "array", "uniqueItems": true, "items": {"type": "object", "patternProperties": {"a": {"enum": [1, 2]}, "^[bx]*$": {"type": "string"}}, "additionalProperties": false}})",
};

class JsonLanguageTest : public testing::TestWithParam<const char*> {};

// A random walk can be ended everywhere, and all that is written is what the grammar accepts.
TEST_P(JsonLanguageTest, EveryWayLeadsToAnEnd) {
  const GrammarPtr grammar = compile_json_schema(GetParam());
  const LanguagePtr language = make_language(grammar);
  std::mt19937 random(7);
  const std::string likely = "{}[]\":,0123456789-.eabcx_ \\untrlsfkidvb";
  for (int walk = 0; walk < 30; ++walk) {
    const auto matcher = language->begin();
    Matcher checked(grammar);
    std::string text;
    for (int step = 0; step < 60; ++step) {
      const std::string ending = matcher->ending();
      ASSERT_EQ(ending.empty(), matcher->can_end()) << text;
      ASSERT_LE(ending.size(), matcher->ending_bytes()) << text;
      ASSERT_TRUE(accepts(grammar, text + ending)) << text << " + " << ending;
      for (const char c : ending) ASSERT_TRUE(matcher->push(static_cast<uint8_t>(c))) << text;
      ASSERT_TRUE(matcher->can_end()) << text;
      matcher->pop(ending.size());
      std::vector<uint8_t> bytes;
      for (int byte = 0; byte < 256; ++byte) {
        if (!matcher->push(static_cast<uint8_t>(byte))) continue;
        matcher->pop(1);
        bytes.push_back(static_cast<uint8_t>(byte));
      }
      ASSERT_EQ(matcher->must_end(), bytes.empty()) << text;
      if (const auto next = matcher->next_bytes()) {
        for (const uint8_t byte : bytes) {
          ASSERT_EQ(std::ranges::count(*next, static_cast<char>(byte)), 1) << text << byte;
        }
      }
      if (bytes.empty()) break;
      uint8_t byte = bytes[random() % bytes.size()];
      for (int attempt = 0; attempt < 8; ++attempt) {
        if (likely.find(static_cast<char>(byte)) != std::string::npos) break;
        byte = bytes[random() % bytes.size()];
      }
      ASSERT_TRUE(matcher->push(byte));
      if (step % 3 == 0) matcher->commit();
      text += static_cast<char>(byte);
      ASSERT_TRUE(checked.advance(byte)) << text;
      ASSERT_LE(!checked.can_end(), !matcher->can_end()) << text;
    }
  }
}

// What a name that has begun may become decides how long its value is at least.
TEST(JsonLanguageNames, AreBoundByTheLongestOfTheirValues) {
  const LanguagePtr language = make_language(compile_json_schema(
      R"({"patternProperties": {"^z": {"type": "integer", "minimum": 1e99}, "b$": {}}})"));
  const auto matcher = language->begin();
  for (const char c : std::string_view("{\"x\":1,\"zbc")) {
    ASSERT_TRUE(matcher->push(static_cast<uint8_t>(c))) << c;
    EXPECT_LE(matcher->ending().size(), matcher->ending_bytes()) << c;
  }
  EXPECT_GT(matcher->ending().size(), 99u);
}

TEST(JsonLanguageWhiteSpace, IsAsMuchAsIsAllowed) {
  const std::string dense = R"({"a":[1,{}],"b":null})";
  const std::string compact = R"({"a": [1, {}], "b": null})";
  const std::string loose = R"({ "a":1})";
  const std::string indented = "{\n  \"a\": 1\n}";
  const GrammarPtr any = compile_json_schema("true");
  const auto with = [&](std::string_view white_space) {
    return make_language(any, {.white_space = parse_white_space(white_space)});
  };
  struct Case {
    std::string_view white_space;
    bool compact, loose, indented;
  };
  for (const Case& one :
       {Case{"none", false, false, false}, Case{"compact", true, false, false},
        Case{"1", true, true, false}, Case{"3", true, true, true}, Case{"32", true, true, true}}) {
    const LanguagePtr language = with(one.white_space);
    EXPECT_TRUE(generates(language, dense)) << one.white_space;
    EXPECT_EQ(generates(language, compact), one.compact) << one.white_space;
    EXPECT_EQ(generates(language, loose), one.loose) << one.white_space;
    EXPECT_EQ(generates(language, indented), one.indented) << one.white_space;
  }
  for (const char* text : {"{\"a\" :1}", "{\"a\":  1}", "{\"a\":\n1}", "[ 1]", "[1 ]", "[1 ,2]"}) {
    EXPECT_FALSE(generates(with("compact"), text)) << text;
    EXPECT_FALSE(generates(with("none"), text)) << text;
  }
  EXPECT_TRUE(generates(with("4"), "[\n   1]"));
  EXPECT_FALSE(generates(with("3"), "[\n   1]"));
}

TEST(JsonLanguageWhiteSpace, ReadsItsNames) {
  for (const char* wrong : {"", "0", "1001", "-1", "some", "3 ", "none "}) {
    EXPECT_THROW(parse_white_space(wrong), Error) << wrong;
  }
}

// Bytes, and tokens that begin, end and go through strings, names and brackets.
TokenTriePtr json_trie() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const std::vector<std::string> parts = {
      "\"",   "{\"", "\":", "\":\"", "\",\"", "a",     "ab",   "x_",   "kind", "1",   "23",  " ",
      "true", "\"}", "]}",  "\\",    "\\n",   "\\u00", "\xC3", "\xA9", "[\"",  "},{", "bad", ": "};
  for (const std::string& a : parts) {
    if (a.size() > 1) tokens.push_back(a);
    for (const std::string& b : parts) {
      tokens.push_back(a + b);
      tokens.push_back(a + b + "\"");
    }
  }
  return std::make_shared<TokenTrie>(std::move(tokens));
}

// What is said of whole strings at once is what trying each byte says.
TEST_P(JsonLanguageTest, MasksAreThoseOfTryingEachToken) {
  const LanguagePtr language = make_language(compile_json_schema(GetParam()));
  const TokenTriePtr trie = json_trie();
  std::mt19937 random(11);
  for (int walk = 0; walk < 6; ++walk) {
    const auto matcher = language->begin();
    std::string text;
    for (int step = 0; step < 12; ++step) {
      std::vector<uint32_t> mask(mask_words(trie->num_tokens()));
      std::vector<uint32_t> expected(mask.size());
      const size_t all_from = matcher->allow_tokens(*trie, ByteMatcher::kNoEnding, mask);
      ASSERT_NE(all_from, ByteMatcher::kNoEnding);
      matcher->allow_tokens(*trie, all_from, expected);
      ASSERT_EQ(expected, mask) << text << ", an end within " << all_from;
      std::ranges::fill(expected, 0);
      matcher->ByteMatcher::allow_tokens(*trie, ByteMatcher::kNoEnding, expected);
      std::vector<int32_t> tokens;
      for (int32_t token = 0; token < static_cast<int32_t>(trie->num_tokens()); ++token) {
        ASSERT_EQ(is_allowed(mask, token), is_allowed(expected, token))
            << text << " + " << trie->bytes(token);
        if (is_allowed(mask, token)) tokens.push_back(token);
      }
      // With an end in sight nothing is allowed from which it is too far.
      const size_t most = matcher->ending_bytes() + random() % 20;
      std::vector<uint32_t> in_time(mask.size());
      std::ranges::fill(expected, 0);
      matcher->allow_tokens(*trie, most, in_time);
      matcher->ByteMatcher::allow_tokens(*trie, most, expected);
      for (int32_t token = 0; token < static_cast<int32_t>(trie->num_tokens()); ++token) {
        ASSERT_LE(is_allowed(in_time, token), is_allowed(expected, token))
            << text << " + " << trie->bytes(token) << " in " << most;
      }
      if (tokens.empty()) break;
      const std::string_view bytes = trie->bytes(tokens[random() % tokens.size()]);
      for (const char c : bytes) ASSERT_TRUE(matcher->push(static_cast<uint8_t>(c)));
      matcher->commit();
      text += bytes;
    }
  }
}

// The mask is the one that is found by trying each token.
void compare_with_each_token(ByteMatcher& matcher, const TokenTrie& trie) {
  std::vector<uint32_t> mask(mask_words(trie.num_tokens()));
  std::vector<uint32_t> expected(mask.size());
  matcher.allow_tokens(trie, ByteMatcher::kNoEnding, mask);
  matcher.ByteMatcher::allow_tokens(trie, ByteMatcher::kNoEnding, expected);
  for (int32_t token = 0; token < static_cast<int32_t>(trie.num_tokens()); ++token) {
    ASSERT_EQ(is_allowed(mask, token), is_allowed(expected, token)) << " + " << trie.bytes(token);
  }
}

// Where any text of some groups of characters may follow, their tokens are not looked at: the
// others are letters with signs, white space of all kinds, and characters that have only begun.
TEST(JsonLanguageMasks, OfFreeTextAreThoseOfTryingEach) {
  const std::vector<std::string> parts = {
      "a",           "g",    "zz",       "A",        "K",        "7",
      " ",           "@",    "/",        ":",        ".",        "-",
      "\x7f",        "\n",   "\"",       "\\",       "\\n",      "\xc3\xa9",
      "\xc2",        "\xa0", "\xe2",     "\xe2\x80", "\x80\x83", "\x82\xac",
      "\xe3\x80",    "\xe3", "\xf0\x9f", "\x98\x80", "\xff",     "\xef\xbb\xbf",
      "\xe4\xb8\xad"};
  std::vector<std::string> tokens = {"", "abcabc"};
  for (const std::string& a : parts) {
    tokens.push_back(a);
    for (const std::string& b : parts) {
      tokens.push_back(a + b);
      if (a.size() == 1) tokens.push_back(b + a + b);
    }
  }
  const auto trie = std::make_shared<const TokenTrie>(std::move(tokens));
  for (const char* pattern :
       {"^.+$", "^[^/]+/[^/]+$", "^\\\\S+$", "^[^@\\\\s]+@[^@.\\\\s]+(\\\\.[^@\\\\s]*)*.uk",
        "^([^:]+:[a-f0-9]+|[a-f0-9]{12})$", "[0-9]+(mm|a)@7", "^[a-z]+(-[a-z]+)*$", "^a|g|7$",
        "^(\\\\S+ ){0,99}\\\\S+$", "^[\\\\u00e9a-z]*7?$", "^([a-z]{2}[^a]*|[A-Z ]+)$",
        "^https?://.+$"}) {
    for (const char* more : {"", R"(, "maxLength": 14)"}) {
      const std::string schema =
          fmt::format(R"({{"type": "string", "pattern": "{}"{}}})", pattern, more);
      const LanguagePtr language = make_language(compile_json_schema(schema));
      for (const std::string_view text :
           {"\"aza@g.a", "\"a/7-", "\"a:7a", "\"\xe4\xb8\xad\xe2\x82"}) {
        const auto matcher = language->begin();
        for (size_t i = 0; i < text.size(); ++i) {
          if (!matcher->push(static_cast<uint8_t>(text[i]))) break;
          matcher->commit();
          SCOPED_TRACE(fmt::format("{}: {}", schema, text.substr(0, i + 1)));
          ASSERT_NO_FATAL_FAILURE(compare_with_each_token(*matcher, *trie));
        }
      }
    }
  }
}

// Where very many tokens begin alike, what all of them do is found without a look at each.
TEST(JsonLanguageMasks, OfManyTokensAreThoseOfTryingEach) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 128; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (char first = 'a'; first <= 'z'; ++first) {
    for (char second = 'a'; second <= 'z'; ++second) tokens.push_back({'a', first, second});
  }
  const auto trie = std::make_shared<const TokenTrie>(std::move(tokens));
  for (
      const char* schema :
      {R"({"type": "string", "pattern": "^[^@]+@ab$", "maxLength": 9})",
       R"({"type": "string", "pattern": "^[^@]{3,}@[^.]+\\.ab$", "minLength": 5, "maxLength": 12})",
       R"({"oneOf": [{"type": "string", "pattern": "^a*1$"}, {"type": "string", "maxLength": 4}]})",
       R"({"anyOf": [{"type": "string", "pattern": "^[^@]+@a$", "maxLength": 8}, {"type": "string", "pattern": "^a[a-y]*$", "maxLength": 6}]})"}) {
    const LanguagePtr language = make_language(compile_json_schema(schema));
    const auto matcher = language->begin();
    std::string text;
    for (const char next : std::string_view("\"aaabza@a")) {
      if (!matcher->push(static_cast<uint8_t>(next))) break;
      matcher->commit();
      text += next;
      SCOPED_TRACE(fmt::format("{}: {}", schema, text));
      ASSERT_NO_FATAL_FAILURE(compare_with_each_token(*matcher, *trie));
    }
  }
}

// How many bytes the mask behind `text` tries.
uint64_t bytes_tried(const std::string& schema, std::string_view text, const TokenTrie& trie) {
  const LanguagePtr language = make_language(compile_json_schema(schema));
  JsonTokenMatcher matcher(dynamic_cast<const JsonLanguage&>(*language));
  for (const char c : text) EXPECT_TRUE(matcher.push(static_cast<uint8_t>(c))) << text;
  matcher.commit();
  std::vector<uint32_t> mask(mask_words(trie.num_tokens()));
  const uint64_t before = matcher.bytes_tried();
  matcher.allow_tokens(trie, ByteMatcher::kNoEnding, mask);
  EXPECT_TRUE(std::ranges::any_of(mask, [](uint32_t word) { return word != 0; }));
  return matcher.bytes_tried() - before;
}

// Tokens that end names go on alike behind them, whichever of the patterns the name matches.
TEST(JsonLanguageMasks, OfNamesTryNoMoreForMoreTokensThatEndThem) {
  std::vector<std::string> tokens = {"\"", "\":", "\": {", "\":1"};
  const auto more_tokens = [&](std::string_view letters) {
    for (const char a : letters) {
      for (const char b : letters) tokens.push_back({a, b, '"', ':'});
    }
    return TokenTrie(tokens);
  };
  const TokenTrie few = more_tokens("abx");
  const TokenTrie many = more_tokens("abcdefghijklmnopqrstuvwxyz");
  for (const char* others : {"true", "false"}) {
    const std::string schema = fmt::format(
        R"({{"type": "object", "patternProperties": {{"a": {{"type": "integer"}}, "^.b": {{"type": ["integer", "object"]}}}}, "additionalProperties": {}}})",
        others);
    for (const char* text : {"{\"", "{\"x"}) {
      EXPECT_EQ(bytes_tried(schema, text, few), bytes_tried(schema, text, many)) << schema << text;
    }
  }
}

TEST(JsonLanguageMasks, OfNamesTryEachOnceHoweverManyWaysListIt) {
  const TokenTrie trie({"\"", "kind\":", "name\":", "size\":", "si", "\":", "\": "});
  const auto with_ways = [](int count) {
    std::string ways;
    for (int i = 0; i < count; ++i) {
      ways += fmt::format(
          R"({}{{"properties": {{"kind": {{"const": {}}}, "name": {{}}, "size": {{}}}}, "required": ["kind"]}})",
          i == 0 ? "" : ", ", i);
    }
    return R"({"type": "object", "anyOf": [)" + ways + "]}";
  };
  EXPECT_EQ(bytes_tried(with_ways(2), "{\"", trie), bytes_tried(with_ways(24), "{\"", trie));
}

TEST(JsonLanguageLearnt, ManyRememberNoMoreThanOne) {
  const LanguagePtr language = make_language(compile_json_schema(kSchemas[0]));
  const auto& json = dynamic_cast<const JsonLanguage&>(*language);
  using Learnt = std::shared_ptr<JsonLanguage::Learnt>;
  const Learnt first = json.share_learnt();
  const size_t most = first->automaton_tokens.max_bytes();
  EXPECT_GT(most, 0u);
  std::vector<Learnt> others;
  std::vector<std::weak_ptr<JsonLanguage::Learnt>> known;
  for (int i = 0; i < 20; ++i) known.push_back(others.emplace_back(json.share_learnt()));
  std::set<Learnt> different(others.begin(), others.end());
  different.insert(first);
  EXPECT_GT(different.size(), 2u);
  size_t together = 0;
  for (const Learnt& learnt : different) together += learnt->automaton_tokens.max_bytes();
  EXPECT_LE(together, most);
  different.clear();
  others.clear();
  const Learnt next = json.share_learnt();
  EXPECT_EQ(next->automaton_tokens.max_bytes(), most / 2);
  for (const auto& learnt : known) {
    const Learnt left = learnt.lock();
    EXPECT_TRUE(left == nullptr || left == first || left == next) << "nobody has it";
  }
}

TEST(AutomatonTokensStore, ForgetsWhereItHasMoreThanItMay) {
  const TokenTriePtr trie = json_trie();
  StringLexer lexer;
  const int32_t state = lexer.begin({StringTarget{}});
  AutomatonTokensStore store;
  store.limit(SIZE_MAX);
  store.at(*trie, TokenTrie::kRoot, state, lexer, false);
  const size_t of_one = store.bytes();
  store.at(*trie, 0, state, lexer, false);
  EXPECT_GT(store.bytes(), of_one);
  store.limit(of_one);
  store.at(*trie, TokenTrie::kRoot, state, lexer, false);
  EXPECT_EQ(store.bytes(), of_one);
}

INSTANTIATE_TEST_SUITE_P(All, JsonLanguageTest, testing::ValuesIn(kSchemas));

TEST(JsonLanguageTest, WritesWhatModelsWrite) {
  const LanguagePtr language = make_language(compile_json_schema(kSchemas[0]));
  EXPECT_TRUE(generates(language, R"({"a": 1, "b": "x\ny"})"));
  EXPECT_TRUE(generates(language, "{\n  \"b\": \"\",\n  \"a\": -5\n}"));
  EXPECT_FALSE(generates(language, R"({"b": "x"})"));
  EXPECT_FALSE(generates(language, R"({"a": 1, "a": 2})"));
  EXPECT_FALSE(generates(language, R"({"a": 1, "c": 2})"));
}

TEST(JsonLanguageTest, NestsNoDeeperThanIsRead) {
  const GrammarPtr grammar = compile_json_schema(
      R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}, "l": {"type": "object", "properties": {"x": {"type": "object"}}, "required": ["x"]}}, "required": ["l"]}}})");
  const LanguagePtr language = make_language(grammar);
  const auto matcher = language->begin();
  std::string text;
  const auto push = [&](std::string_view more) {
    for (const char c : more) {
      if (!matcher->push(static_cast<uint8_t>(c))) return false;
      text += c;
    }
    return true;
  };
  int depth = 0;
  while (push("{\"n\":") && depth < 600) ++depth;
  EXPECT_EQ(depth, 300);
  const std::string ending = matcher->ending();
  EXPECT_TRUE(accepts(grammar, text + ending));
  EXPECT_TRUE(push(ending));
  EXPECT_TRUE(matcher->can_end());
}

}  // namespace
}  // namespace quire::grammar
