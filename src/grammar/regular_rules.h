#pragma once
// Finds the rules of a grammar that are regular, and makes automata of them, which read bytes much
// faster than rules do.
//
// Thread safety: a free function.
#include "grammar/context_free.h"

namespace quire::grammar {

// Replaces rules whose texts an automaton can read, where they are used, and the root's productions
// if it is such a rule; removes the rules that are then unused. The texts stay the same. A rule may
// use itself at the beginning of its productions, or at their ends. Rules whose automata are large
// stay rules. Every rule that is used must have productions.
void fold_regular_rules(ContextFreeGrammar& grammar, Budget& budget);

}  // namespace quire::grammar
