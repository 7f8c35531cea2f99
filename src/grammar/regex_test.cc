#include "grammar/regex.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <regex>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

bool matches(std::string_view pattern, std::string_view text,
             RegexMatch match = RegexMatch::kAnywhere) {
  Budget budget{CompileLimits{}};
  return compile_regex_dfa(pattern, match, budget)->matches(text);
}

std::string regex_error(std::string_view pattern) {
  try {
    matches(pattern, "");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Every text of up to `length` of these characters.
std::vector<std::string> texts_of(std::string_view characters, size_t length) {
  std::vector<std::string> texts = {""};
  for (size_t begin = 0; length > 0; --length) {
    const size_t end = texts.size();
    for (size_t i = begin; i < end; ++i) {
      for (const char c : characters) texts.push_back(texts[i] + c);
    }
    begin = end;
  }
  return texts;
}

TEST(Regex, AgreesWithTheStandardLibrary) {
  const std::vector<std::string> texts = texts_of("ab1-", 5);
  for (const std::string pattern : {"a",
                                    "^a",
                                    "a$",
                                    "^a$",
                                    "^$",
                                    "a|b",
                                    "^a|b$",
                                    "(a|b)*1",
                                    "a+b?",
                                    "a{2}",
                                    "a{2,}",
                                    "^a{1,2}$",
                                    "[ab]",
                                    "[^ab]",
                                    "[a-b]+",
                                    "\\d",
                                    "\\D",
                                    "\\w\\W",
                                    "^.$",
                                    "(?:ab)+",
                                    "^(a|ab)(1|b1)$",
                                    "\\bab\\b",
                                    "a\\b",
                                    "\\Ba",
                                    "\\b",
                                    "\\B",
                                    "^\\b",
                                    "(?=ab)a",
                                    "^(?!ab)",
                                    "^(?!.*1)[ab]*$",
                                    "a(?!b)",
                                    "(?=.*1)(?=.*a)",
                                    "^(?=a).{2}(?!1)",
                                    "(^|-)a($|-)",
                                    "(a*)*b",
                                    "a*?b",
                                    "",
                                    "()",
                                    "x*",
                                    "[-a]",
                                    "[a-]",
                                    "^(?:a|b|)$"}) {
    const std::regex expected(pattern, std::regex::ECMAScript);
    Budget budget{CompileLimits{}};
    const DfaPtr dfa = compile_regex_dfa(pattern, RegexMatch::kAnywhere, budget);
    for (const std::string& text : texts) {
      ASSERT_EQ(dfa->matches(text), std::regex_search(text, expected)) << pattern << " on " << text;
    }
  }
}

TEST(Regex, CountsCharactersNotBytes) {
  EXPECT_TRUE(matches("^.$", "\u00e9"));
  EXPECT_TRUE(matches("^.$", "\U0001F600"));
  EXPECT_FALSE(matches("^.$", "\xc3"));
  EXPECT_TRUE(matches("^[\\u00e0-\\u{1F600}]{2}$", "\u00e9\U0001F600"));
  EXPECT_TRUE(matches("^\\uD83D\\uDE00$", "\U0001F600"));
  EXPECT_FALSE(matches("^[^\\u00e9]$", "\u00e9"));
  EXPECT_TRUE(matches("^\\s$", "\u3000"));
  EXPECT_FALSE(matches("^\\d$", "\u0663"));
  EXPECT_TRUE(matches("^\\p{L}\\P{L}$", "\u00e91"));
  EXPECT_TRUE(matches("^\\p{Lu}$", "\u00c9"));
}

TEST(Regex, LooksAtWholeCharacters) {
  EXPECT_FALSE(matches("\\B", "a\u00e9b"));
  EXPECT_TRUE(matches("\\B", "\u00e9\u00e9"));
  EXPECT_FALSE(matches("(?!.|$)", "\u00e9"));
  EXPECT_TRUE(matches("(?!.|$)", "\n"));
  EXPECT_TRUE(matches("a(?=.b)", "a\u00e9b"));
}

TEST(Regex, WholeTexts) {
  EXPECT_TRUE(matches("a|ab", "ab", RegexMatch::kWhole));
  EXPECT_FALSE(matches("a|b", "ab", RegexMatch::kWhole));
  EXPECT_FALSE(matches("b", "ab", RegexMatch::kWhole));
}

TEST(Regex, WhatIsNotRegularIsRefusedByName) {
  EXPECT_NE(regex_error("(a)\\1").find("back reference"), std::string::npos);
  EXPECT_NE(regex_error("(?<=a)b").find("look-behind"), std::string::npos);
  EXPECT_NE(regex_error("((?=a)b)*").find("look-ahead within a repeat"), std::string::npos);
  EXPECT_NE(regex_error("(?i)a").find("unknown kind"), std::string::npos);
  EXPECT_NE(regex_error("\\Z").find("the escape \\Z, which is not supported"), std::string::npos);
  EXPECT_NE(regex_error("\\p{Script=Greek}").find("property"), std::string::npos);
  for (const char* broken :
       {"(", ")", "[", "*", "a**", "a{2,1}", "[b-a]", "\\", "\\x1", "(?<n", "a{,3}", "x{", "x{1",
        "]", "}", "[[:alpha:]]", "(?P<n>a)", "{2}", "a{2}{3}"}) {
    EXPECT_NE(regex_error(broken).find("not a regular expression"), std::string::npos) << broken;
  }
}

TEST(Regex, WhatExplodesMeetsTheLimits) {
  CompileLimits limits;
  limits.time = std::chrono::milliseconds(200);
  limits.memory_bytes = 32 << 20;
  for (const char* pattern :
       {"(a|b)*a(a|b){30}", "((a{1,100}){1,100}){1,100}", "(.*a){25}b.{40}$"}) {
    Budget budget(limits);
    EXPECT_THROW(compile_regex_dfa(pattern, RegexMatch::kAnywhere, budget), Error) << pattern;
  }
}

TEST(Regex, LimitsHoldWithinEachStep) {
  CompileLimits limits;
  limits.time = std::chrono::milliseconds(100);
  std::string letters;
  for (char c = 'a'; c <= 'z'; ++c) letters += fmt::format("{}|{:c}|", c, c - 32);
  std::string properties;
  for (int i = 0; i < 200; ++i) properties += "\\p{L}";
  std::string aheads;
  for (int i = 0; i < 8000; ++i) aheads += "(?=a)";
  for (const std::string& pattern :
       {fmt::format("(?:(?:{})?){{3000}}", letters), properties, aheads}) {
    // The processor's time, as others may have the processor while the clock runs.
    const std::clock_t begin = std::clock();
    Budget budget(limits);
    try {
      compile_regex_dfa(pattern, RegexMatch::kAnywhere, budget);
    } catch (const Error&) {
    }
    EXPECT_LT(std::clock() - begin, 2 * CLOCKS_PER_SEC) << pattern.substr(0, 20);
  }
  EXPECT_NE(regex_error(std::string(70'000, 'a')).find("at most 65536"), std::string::npos);
}

TEST(Regex, GrammarsOfTexts) {
  const GrammarPtr regex = compile_regex("[a-c]+");
  EXPECT_TRUE(accepts(regex, "abc"));
  EXPECT_FALSE(accepts(regex, "abcd"));
  EXPECT_THROW(compile_regex("a^"), Error);
  const GrammarPtr choice = compile_choice(std::vector<std::string>{"yes", "yesterday", ""});
  EXPECT_TRUE(accepts(choice, "yes"));
  EXPECT_TRUE(accepts(choice, ""));
  EXPECT_FALSE(accepts(choice, "yest"));
  EXPECT_THROW(compile_choice({}), Error);
}

}  // namespace
}  // namespace quire::grammar
