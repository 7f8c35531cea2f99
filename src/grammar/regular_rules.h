#pragma once
// Finds the rules of a grammar that are regular, and makes automata of them, which read bytes much
// faster than rules do.
//
// Thread safety: a free function.
#include "grammar/context_free.h"

namespace quire::grammar {

// Replaces rules whose texts an automaton can read, where they are used, and the productions of the
// root if it is one; takes out the rules that are no longer used. Texts stay the same. A rule may
// use itself at the beginning of its productions, or at their ends; those whose automata are large
// stay rules. Every rule that is used has productions.
void fold_regular_rules(ContextFreeGrammar& grammar, Budget& budget);

}  // namespace quire::grammar
