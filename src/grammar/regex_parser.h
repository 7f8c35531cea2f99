#pragma once
// The syntax of ECMAScript's regular expressions, as a tree.
//
// Thread safety: free functions.
#include <string_view>
#include <vector>

#include "grammar/nfa.h"

namespace quire::grammar {

struct RegexNode {
  enum class Kind { kCharacters, kSequence, kAlternatives, kRepeat, kAssertion, kLookAhead };
  static constexpr int kNoLimit = -1;

  Kind kind = Kind::kSequence;
  CharacterSet characters{};          // normalised
  std::vector<RegexNode> children{};  // of all but characters and assertions
  int min = 0;                        // of a repeat
  int max = kNoLimit;                 // of a repeat
  Nfa::Epsilon assertion{};
  bool is_negative = false;  // of a look-ahead
};

// Counts its memory in `memory`. Throws Error as compile_regex_dfa does.
RegexNode parse_regex(std::string_view pattern, ScratchMemory& memory);

// The characters of \p{NAME}: general categories, and a few properties. Throws Error.
CharacterSet unicode_property(std::string_view name);

}  // namespace quire::grammar
