#include "tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "quire/error.h"
#include "tokenizer/scanner.h"

namespace quire::tokenizer_internal {
namespace {

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<std::string> out;
  Regex(pattern, "field").for_each_match(text, [&](std::size_t start, std::size_t end) {
    out.push_back(text.substr(start, end - start));
  });
  return out;
}

using Texts = std::vector<std::string>;

TEST(Regex, ReadsClassesAsUnicodeDoes) {
  EXPECT_EQ(matches(R"(\p{L}+)", "naïve 中文!"), (Texts{"naïve", "中文"}));
  EXPECT_EQ(matches(R"(\s)", "a\u00a0b\u180ec\u0085"), (Texts{"\u00a0", "\u0085"}));
  EXPECT_EQ(matches(R"([^\s\p{L}]+)", "a \u180e1"), (Texts{"\u180e1"}));
  EXPECT_EQ(matches(R"([]a]+)", "]a["), (Texts{"]a"}));
}

TEST(Regex, PassesOverEmptyMatchesRightAfterAMatch) {
  EXPECT_EQ(matches("a*", "baab"), (Texts{"", "aa", ""}));
}

TEST(Regex, RefusesWhatRubyReadsOtherwise) {
  for (const char* pattern : {R"(\h)", R"([a&&b])", R"(a{1,2}+)", R"(a{,2})", "(?m)a", "[[a]]"}) {
    EXPECT_THROW(Regex(pattern, "field"), Error) << pattern;
  }
  EXPECT_THROW(Regex("(", "field"), Error);
}

TEST(Regex, GivesUpOnEndlessBacktracking) {
  EXPECT_THROW(matches("(a+)+[bc]", std::string(5000, 'a')), Error);
}

// The scanners against the engine, on every short string of characters that the patterns tell
// apart.
TEST(Scanner, CutsAsItsPatternDoes) {
  const CharClasses classes;
  const std::vector<std::string> alphabet = {" ", "\n", "\r", "\t", "'",      "s",
                                             "L", "l",  "e",  "R",  "7",      "!",
                                             "é", "½",  "ſ",  "中", "\u3000", "\u0301"};
  const std::vector<std::string> patterns = {
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
  for (const std::string& pattern : patterns) {
    const auto kind = find_scanner(pattern);
    ASSERT_TRUE(kind) << pattern;
    const Regex regex(pattern, "field");
    const std::size_t n = alphabet.size();
    for (std::size_t code = 0; code < n * n * n * n; ++code) {
      std::string text;
      for (std::size_t rest = code; rest > 0; rest /= n) text += alphabet[rest % n];
      std::vector<std::size_t> expected;
      std::vector<std::size_t> got;
      regex.for_each_match(text, [&](std::size_t, std::size_t end) { expected.push_back(end); });
      scan(*kind, text, classes, [&](std::size_t, std::size_t end) { got.push_back(end); });
      ASSERT_EQ(got, expected) << pattern << "\n" << testing::PrintToString(text);
    }
  }
}

}  // namespace
}  // namespace quire::tokenizer_internal
