#pragma once
// Text that may follow in a string of an automaton, however long it is.
//
// Thread safety: a free function.
#include <cstdint>

#include "grammar/tokens/byte_groups.h"

namespace quire::grammar {

class EscapedDfa;

// What holds wherever text of some groups leads.
struct FreeText {
  ByteGroups groups = 0;   // 0: none are found
  bool is_endless = true;  // very many texts may follow
  // Characters that have to follow, those of the text itself aside.
  uint32_t num_characters = 0;
};

// Either of them has much of a vocabulary.
inline constexpr ByteGroups kOfManyTokens = group_bit(ascii_group('z')) | group_bit(kManyBytes);

// From a state between characters. `counts`: the same number of characters has to follow wherever
// the text leads; else num_characters says nothing. As many groups as it finds, the letters first.
FreeText find_free_text(const EscapedDfa& dfa, int32_t state, bool counts);

}  // namespace quire::grammar
