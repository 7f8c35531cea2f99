#include "grammar/gbnf.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

struct GbnfCase {
  std::string grammar;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

std::string gbnf_error(const std::string& grammar, const CompileLimits& limits = {}) {
  try {
    compile_gbnf(grammar, limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Gbnf, Texts) {
  const std::vector<GbnfCase> cases = {
      {"root ::= \"yes\" | \"no\"  # or\n", {"yes", "no"}, {"", "ye", "yesno"}},
      {"root ::= \"(\" root \")\" root |", {"", "()", "(()())()"}, {"(", ")(", "(()"}},
      {"root ::= sum\nsum ::= sum \"+\" term | term\nterm ::= term \"*\" [0-9] | [0-9]",
       {"1", "1+2*3+4"},
       {"+1", "1+", "12"}},
      {"root ::= a a a\na ::= b? \"\"\nb ::= \"x\"", {"", "x", "xxx"}, {"xxxx"}},
      {"root ::= [^\"\\n]{2,3} \".\"*",
       {"ab", "ab\u00e9...", "\U0001F600\U0001F600"},
       {"a", "abcd", "a\n"}},
      {"root ::= (\"a\" | \"b\"\n  | [x-z]+)+ .?\n", {"a", "bxyza", "a\u00e9"}, {"", "a12"}},
      {"root ::= \"\\u00e9\\x41\\\"\" [\\]\\-]{2}\n", {"\u00e9A\"]-"}, {"\u00e9A\"]"}},
      {"root ::= (\"a\"{2}){3,}", {"aaaaaa", "aaaaaaaa"}, {"aaaa", "aaaaaaa"}},
      {"root ::= x \"a\" | \"ab\"\nx ::= x x", {"ab"}, {"a"}},
  };
  for (const GbnfCase& one : cases) {
    GrammarPtr grammar;
    ASSERT_NO_THROW(grammar = compile_gbnf(one.grammar)) << one.grammar;
    for (const std::string& text : one.accepted) {
      EXPECT_TRUE(accepts(grammar, text)) << one.grammar << " on " << text;
    }
    for (const std::string& text : one.rejected) {
      EXPECT_FALSE(accepts(grammar, text)) << one.grammar << " on " << text;
    }
  }
}

TEST(Gbnf, AgreesWithItsDefinitionOnBrackets) {
  const GrammarPtr grammar = compile_gbnf("root ::= \"[\" root \"]\" | root root | \"\"");
  for (uint32_t bits = 0; bits < 1U << 10; ++bits) {
    for (uint32_t length = 0; length <= 10; ++length) {
      std::string text;
      int depth = 0;
      bool expected = true;
      for (uint32_t i = 0; i < length; ++i) {
        const bool opens = (bits >> i & 1) != 0;
        text += opens ? '[' : ']';
        depth += opens ? 1 : -1;
        expected &= depth >= 0;
      }
      ASSERT_EQ(accepts(grammar, text), expected && depth == 0) << text;
    }
  }
}

TEST(Gbnf, ErrorsSayWhere) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no rule root"},
      {"a ::= \"x\"", "no rule root"},
      {"root ::= \"a\"\nroot ::= b", "line 2, column 1: the rule root is there twice"},
      {"root ::= \"a\"\n  other", "line 2, column 3: there is no rule other"},
      {"root ::= \"a", "line 1, column 12: expected a character"},
      {"root ::= [b-a]", "ends before it begins"},
      {"root ::= (\"a\"", "a ( without its )"},
      {"root ::= \"a\"{3,2}", "n below m"},
      {"root ::= \"a\"{99999}", "a repeat beyond"},
      {"root ::= \"\\q\"", "an unknown escape"},
      {"root -> \"a\"", "expected ::="},
      {"root ::= root \"a\"", "never ends"},
      {"root ::= \"\xff\"", "expected a character"},
      {"root ::= " + std::string(1000, '('), "nested deeper"},
  };
  for (const auto& [grammar, message] : cases) {
    EXPECT_NE(gbnf_error(grammar).find(message), std::string::npos)
        << grammar.substr(0, 100) << ": " << gbnf_error(grammar);
  }
  CompileLimits limits;
  limits.memory_bytes = 1 << 14;
  EXPECT_THROW(compile_gbnf("root ::= (\"a\"{2000}){2000}", limits), Error);
  // Each group is a rule with the name of its rule.
  limits.memory_bytes = 16 << 20;
  limits.time = std::chrono::minutes(5);  // of a sanitizer's build too
  const std::string name(100'000, 'a');
  std::string groups;
  for (int i = 0; i < 200; ++i) groups += " (\"x\")";
  EXPECT_NE(gbnf_error("root ::= " + name + "\n" + name + " ::=" + groups, limits).find("memory"),
            std::string::npos);
}

TEST(Gbnf, LongTexts) {
  const GrammarPtr list = compile_gbnf("root ::= item (\",\" item)*\nitem ::= [a-z]+");
  std::string text = "a";
  for (int i = 0; i < 20'000; ++i) text += ",abc";
  EXPECT_TRUE(accepts(list, text));
  EXPECT_FALSE(accepts(list, text + ","));
}

}  // namespace
}  // namespace quire::grammar
