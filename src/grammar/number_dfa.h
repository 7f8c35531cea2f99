#pragma once
// Sets of numbers as automata of their decimal notation without an exponent ("-12.50").
//
// Thread safety: free functions.
#include <span>

#include "grammar/decimal.h"
#include "grammar/dfa.h"

namespace quire::grammar {

// -?(0|[1-9][0-9]*)(\.[0-9]+)?
DfaPtr any_number_dfa(Budget& budget);
DfaPtr integer_dfa(Budget& budget);

enum class Bound { kAtLeast, kMoreThan, kAtMost, kLessThan };
DfaPtr bound_dfa(const Decimal& bound, Bound kind, Budget& budget);

// Multiples of `divisor` > 0. Throws Error where that takes too many states.
DfaPtr multiple_dfa(const Decimal& divisor, Budget& budget);

// The numbers of a set.
DfaPtr number_set_dfa(std::span<const Decimal> numbers, Budget& budget);

}  // namespace quire::grammar
