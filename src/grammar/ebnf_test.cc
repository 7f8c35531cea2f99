#include "grammar/ebnf.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

struct EbnfCase {
  std::string grammar;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

void expect_texts(const std::vector<EbnfCase>& cases) {
  for (const EbnfCase& one : cases) {
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

std::string ebnf_error(const std::string& grammar) {
  try {
    compile_gbnf(grammar);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Ebnf, KnowsTheNotations) {
  for (const char* text :
       {"root ::= 'a'", "root ::= #x41", "root ::= [#x41-#x43]", "/* a */ root ::= \"a\"",
        "root ::= \"a\" /* b */", "<a> ::= <b>", "root ::= <b>", "# a\nroot ::= 'b'"}) {
    EXPECT_EQ(ebnf_kind(text), EbnfKind::kW3c) << text;
  }
  for (const char* text : {"root = \"a\";", "(* a: b *) root = 'a'", "a (* : *) = b"}) {
    EXPECT_EQ(ebnf_kind(text), EbnfKind::kIso) << text;
  }
  for (const char* text :
       {"", "root ::= \"a\" # it's #x", "root ::= \"'<#x41\" [\\]'#<]", "start: \"=\"",
        "%import common.WS", "root ::= \"\\\"#x41\"", "# root = a\nroot ::= \"a\"", "?a: b"}) {
    EXPECT_EQ(ebnf_kind(text), EbnfKind::kNone) << text;
  }
}

TEST(Ebnf, W3c) {
  expect_texts({
      {"root ::= #x41 [#x61-#x63]", {"Aa", "Ac"}, {"A", "x41", "Ad", "A#"}},
      {"list ::= item (',' item)*  /* one\n or more */\nitem ::= [a-z#xE0-#xFF]+ | '(' list? ')'",
       {"a", "ab,\u00e9", "(a,b),()"},
       {"", "a,", "(", ",a"}},
      {"<a> ::= <first part> 'x';\n<first part> ::= \"'\" | '\"'", {"'x", "\"x"}, {"x", "''x"}},
      {"x ::= 'a' root\nroot ::= 'b'{2,3} 'c'{1}", {"bbc", "bbbc"}, {"abbc", "bc"}},
      {"root ::= [a-z] - [aeiou] - 'z' | 'A' - #x41", {"b", "y"}, {"a", "z", "A"}},
      {"root ::= [^#x41-#x5A\"]+ '\\'", {"ab\\"}, {"aB\\", "a\"\\", "ab"}},
      {"root ::= 'a' | /* nothing */", {"", "a"}, {"aa"}},
      {"root ::= 'a' # as in GBNF\n 'b'", {"ab"}, {"a"}},
      {"#\r\nroot ::= 'a' #\r\n 'b' #without a space\r\n #x63", {"abc"}, {"a", "ab"}},
      {"<> ::= 'a' <b>\n<b> ::= 'b' <>?", {"ab", "abab"}, {"b", "a"}},
  });
}

TEST(Ebnf, Iso) {
  expect_texts({
      {"list = item, { \",\", item };  (* one\n or more *)\n"
       "item = 'x' | \"y\" / 'z' ! \"(\", [ list ], \")\";",
       {"x", "y,z", "(x,y),()"},
       {"", "x,", "(", "x y"}},
      {"root = 3 * 'a', 2 * ( 'b' | 'c' );", {"aaabc"}, {"aabc", "aaab"}},
      {"number = digit { digit } [ \".\" { digit } ] .\ndigit = '0' | '1' .",
       {"0", "10.", "1.01"},
       {"", ".1", "2"}},
      {"root = 'a'* 'b'+\nother = 'c'", {"b", "aabb"}, {"", "a"}},
      {"root = (/ 'a' /), '\\' | ;", {"a\\", "\\", ""}, {"a"}},
      {"root = { 'a' - \"b\" }, \"a-b\";", {"aa-b"}, {"ba-b"}},
  });
}

TEST(Ebnf, ErrorsSayWhere) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"root ::= 'a' other", "line 1, column 14: there is no rule other"},
      {"root ::= 'a' {'b'}", "expected a count: in W3C's notation any number of times is *"},
      {"root ::= '\\n'", "line 1, column 11: a \\ stands for itself in this notation"},
      {"root ::= [\\n] 'a'", "column 11: a \\ stands for itself"},
      {"root ::= 'a' /* b", "a comment without its end"},
      {"root ::= #x110000", "an escape of no character"},
      {"root ::= 'a' - x\nx ::= 'b'", "an exception (-) is taken only between single characters"},
      {"root ::= [#x43-#x41]", "ends before it begins"},
      {"root ::= 'a' #x", "expected the name of a rule"},
      {"root ::= 'a' #X41", "expected the name of a rule"},
      {"root ::= <b", "a < without its >"},
      {"root ::= 'a'\n\nroot ::= 'b'", "line 3, column 1: the rule root is there twice"},
      {"root = ? any character ?;", "special sequences (? ?) are not enforced"},
      {"root = 'a' ?", "special sequences (? ?) are not enforced"},
      {"root = 'a', ;", "expected the name of a rule"},
      {"root = [ 'a' ;", "expected ]"},
      {"root = { 'a' ;", "expected }"},
      {"root = first part;\nfirst part = 'a';", "line 2, column 1: expected a rule"},
      {"root = 3 'a';", "expected * behind a number"},
      {"root = \"a", "is a closing mark missing?"},
      {"root = root, 'a';", "never ends"},
      {"root = " + std::string(1000, '('), "nested deeper"},
  };
  for (const auto& [grammar, message] : cases) {
    EXPECT_NE(ebnf_error(grammar).find(message), std::string::npos)
        << grammar.substr(0, 100) << ": " << ebnf_error(grammar);
  }
}

}  // namespace
}  // namespace quire::grammar
