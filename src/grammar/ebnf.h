#pragma once
// EBNF as the W3C and ISO 14977 write it:
//
//   list ::= item (',' item)*             /* W3C: ::=, #x and hexadecimal digits for a character */
//   item ::= [a-z#xE0-#xFF]+ | '(' list ')'
//
//   list = item, { ",", item };           (* ISO: =, { } any number of times, [ ] at most once *)
//   item = "x" | "y" | "(", list, ")", 3 * "!";
//
// Of W3C's notation: <names in brackets>, too, and a ; behind a rule. Of ISO's: a dot for the
// semicolon, and neither of them needed; parts without a comma between; * and + as W3C has them.
// Exceptions (-) are taken between characters and classes of them. In literals and classes a
// backslash stands for itself in both notations, and for an escape in others that are called EBNF:
// it is refused, but for a literal that has nothing else.
// Thread safety: free functions.
#include <string_view>

#include "grammar/context_free.h"

namespace quire::grammar {

enum class EbnfKind { kNone, kW3c, kIso };

// Which of them a grammar is written in. Where it has nothing that tells W3C's notation from GBNF,
// the two mean the same, and it is kNone.
EbnfKind ebnf_kind(std::string_view text);

// The grammar of the rule root; of the first rule where none has that name. `kind` is not kNone.
// Throws Error as parse_gbnf().
ContextFreeGrammar parse_ebnf(std::string_view text, EbnfKind kind, Budget& budget);

}  // namespace quire::grammar
