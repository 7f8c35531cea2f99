#pragma once
// GBNF, llama.cpp's notation of grammars:
//
//   root ::= "[" ws item (", " item)* "]"
//   item ::= [a-z]+ | "\u00e9" | [^"\n]{2,5} | .      # a comment
//   ws   ::= [ \t\n]*
//
// Thread safety: a free function.
#include <string_view>

#include "grammar/context_free.h"

namespace quire::grammar {

// The grammar of the rule root. Throws Error with line and column of what is none, for rules that
// are not there, and if nothing matches.
ContextFreeGrammar parse_gbnf(std::string_view text, Budget& budget);

}  // namespace quire::grammar
