#include "grammar/lark.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

struct LarkCase {
  std::string grammar;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

TEST(Lark, Texts) {
  const std::vector<LarkCase> cases = {
      {"start: \"yes\" | \"no\"  // or\n", {"yes", "no"}, {"", "ye", "yesno"}},
      {"// sums\n?start: sum\n?sum: product (\"+\" product)* -> add\n"
       "product: NUMBER | \"(\" sum \")\"\nNUMBER: /[0-9]+/\n",
       {"1", "12+(3+4)"},
       {"", "1+", "1 + 2"}},
      {"start: item+\n"
       "item: NAME \"=\" (NUMBER\n"
       "    | ESCAPED_STRING)\n"
       "    | \"skip\"i -> nothing\n"
       "%import common.CNAME -> NAME\n%import common (NUMBER, ESCAPED_STRING, WS)\n%ignore WS\n"
       "%ignore /#[^\\n]*\\n/\n",
       {"a=1", " a = \"x\\\"y\"\n b=2.5e3 # end\n", "SKIP skIP"},
       {"", "a=", "a=\"x", "1=a"}},
      {"start: A~2..3 B~2 [\"!\"]\nA: \"a\"..\"c\"\nB.: \"x\"", {}, {}},
      {"start: A~2..3 B~2 [\"!\"]\nA: \"a\"..\"c\"\nB: \"x\" | \"y\" [\"z\"]",
       {"abxx", "abcxyz!", "aayy"},
       {"axx", "abcdxx", "abx", "abxx!!"}},
      {"start: \"(\" start \")\" start\n  |\n", {"", "()", "(())()"}, {"(", ")("}},
      {"!start: _WORD (\",\" _WORD)*\n_WORD: LETTER+\n%import common.LETTER",
       {"ab,c"},
       {"ab,", "1"}},
      {"start: \"\\u00e9\\n\\\"\" /[a-z\\/]+/\n", {"\u00e9\n\"a/b"}, {"\u00e9\n\""}},
  };
  for (const LarkCase& one : cases) {
    if (one.accepted.empty()) {
      EXPECT_THROW(compile_gbnf(one.grammar), Error) << one.grammar;
      continue;
    }
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

TEST(Lark, CommonTerminals) {
  const std::vector<LarkCase> cases = {
      {"NUMBER", {"1", "1.5", "1.", ".5", "1e5", "1.5E-3"}, {"", ".", "-1", "e5"}},
      {"SIGNED_NUMBER", {"-1", "+1.5", "2"}, {"--1"}},
      {"SIGNED_INT", {"-12", "3"}, {"1.5"}},
      {"FLOAT", {"1.5", "1e5", "1.", ".5e1"}, {"1"}},
      {"DECIMAL", {"1.", ".1"}, {"1"}},
      {"CNAME", {"_a1", "b"}, {"1a", ""}},
      {"WORD", {"ab"}, {"a1"}},
      {"NEWLINE", {"\n", "\r\n\n"}, {"\r", ""}},
      {"C_COMMENT", {"/* a * b\n **/", "/**/"}, {"/* */ */", "/*"}},
      {"CPP_COMMENT", {"// a"}, {"// a\n"}},
      {"ESCAPED_STRING", {"\"\"", "\"a\\\\\""}, {"\"a\\\"", "\"\n\""}},
  };
  for (const LarkCase& one : cases) {
    const GrammarPtr grammar =
        compile_gbnf("start: " + one.grammar + "\n%import common." + one.grammar);
    for (const std::string& text : one.accepted) {
      EXPECT_TRUE(accepts(grammar, text)) << one.grammar << " on " << text;
    }
    for (const std::string& text : one.rejected) {
      EXPECT_FALSE(accepts(grammar, text)) << one.grammar << " on " << text;
    }
  }
}

TEST(Lark, IsToldFromGbnf) {
  EXPECT_TRUE(is_lark("# a\n// b\n\nstart: \"::=\""));
  EXPECT_TRUE(is_lark("%import common.WS\nstart: WS"));
  EXPECT_TRUE(is_lark("?start: a"));
  EXPECT_FALSE(is_lark("root ::= \"a: b\""));
  EXPECT_FALSE(is_lark("# start: x\nroot::=[a:]"));
  EXPECT_FALSE(is_lark("root = \"a:b\""));
  EXPECT_FALSE(is_lark(""));
}

TEST(Lark, ErrorsSayWhere) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"item: \"a\"", "the grammar has no rule start"},
      {"start: other", "line 1, column 8: there is no rule other"},
      {"start: \"a\"\nstart: \"b\"", "line 2, column 1: the rule start is there twice"},
      {"start: \"a", "expected a character"},
      {"start: /a", "an expression without its closing /"},
      {"start: /a/i", "the flag i of an expression is not supported"},
      {"start: /a(?=b)/", "the look-around (?=...) is not supported"},
      {"start: /(a/", "line 1, column 8: /(a/: not a regular expression"},
      {"start: (\"a\"", "a ( without its )"},
      {"start: [\"a\"", "a [ without its ]"},
      {"start: \"a\" ) \"b\"", "expected the end of the line"},
      {"start.2: \"a\"", "the priority of start is not supported"},
      {"start: pair{\"a\"}", "the template pair is not supported"},
      {"pair{x}: x\nstart: \"a\"", "the template pair is not supported"},
      {"start: A\nA: b\nb: \"b\"", "line 2, column 4: a terminal cannot use the rule b"},
      {"start: A\n%import .other.A", "%import of other than common is not supported"},
      {"start: A\n%import python.A", "%import of other than common is not supported"},
      {"start: A\n%import common.NONE -> A", "%import common.NONE is not supported"},
      {"start: A\n%declare A", "%declare is not supported"},
      {"start: \"b\"..\"a\"", "ends before it begins"},
      {"start: \"a\"~3..2", "n below m"},
      {"start: start \"a\"", "never ends"},
      {"start: " + std::string(1000, '('), "nested deeper"},
  };
  for (const auto& [grammar, message] : cases) {
    try {
      compile_gbnf(grammar);
      ADD_FAILURE() << grammar;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
          << grammar.substr(0, 100) << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace quire::grammar
