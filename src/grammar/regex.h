#pragma once
// ECMAScript's regular expressions, as far as they are regular, over UTF-8.
//
// Characters are code points, as with the flag u. \d and \w are ASCII, \s and . are ECMAScript's.
// Look-aheads are exact, except inside unbounded repeats, where they are refused. Also refused, by
// name: back references, look-behind, flags, and syntax that ECMAScript lacks. Thread safety: free
// functions.
#include <string>
#include <string_view>

#include "grammar/dfa.h"

namespace quire::grammar {

enum class RegexMatch {
  kWhole,    // the whole text, as ^(?:...)$
  kAnywhere  // some part of it, as JSON Schema's "pattern"
};

// Throws Error, which goes on from the name of the expression: "not a regular expression: ...".
DfaPtr compile_regex_dfa(std::string_view pattern, RegexMatch match, Budget& budget);

}  // namespace quire::grammar
