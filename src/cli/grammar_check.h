#pragma once
// A line of `quire grammar check`: a constraint and texts, and which of them it accepts.
//
// Thread safety: free functions.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/budget.h"

namespace quire::cli {

struct GrammarCheck {
  std::optional<std::string> error;  // why it did not compile; the rest is empty then
  double compile_ms = 0;
  std::vector<bool> accepted;  // for each text
};

// A line that is none of those that are taken does not compile; the error opens with `where`.
GrammarCheck check_grammar_line(std::string_view line, std::string_view where,
                                const grammar::CompileLimits& limits);

// {"compiled": true, ...} in one line, without its line feed.
std::string to_json_line(const GrammarCheck& check);

}  // namespace quire::cli
