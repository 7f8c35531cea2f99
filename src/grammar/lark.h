#pragma once
// A common subset of Lark's notation of grammars:
//
//   start: item ("," item)*           // rules: small letters
//   item: NAME | NUMBER | "(" start ")"
//   NAME: "_"? /[a-z]+/               // terminals: capitals
//   %import common (NUMBER, WS)
//   %ignore WS
//
// A text is cut into terminals in any way that fits, not by a lexer that takes the longest ones.
// Refused, by name: imports from other modules than common, templates, priorities, %declare,
// %override, %extend, flags and look-arounds of expressions. Thread safety: free functions.
#include <string_view>

#include "grammar/context_free.h"

namespace quire::grammar {

// Whether the first rule or directive is written in Lark's way (`name:`), not in GBNF's (`name
// ::=`).
bool is_lark(std::string_view text);

// The grammar of the rule start. Throws Error as parse_gbnf().
ContextFreeGrammar parse_lark(std::string_view text, Budget& budget);

}  // namespace quire::grammar
