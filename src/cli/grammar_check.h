#pragma once
// A line of `quire grammar check`: a constraint and texts; which of the texts it accepts, and which
// could be generated.
//
// Thread safety: free functions.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/mask_check.h"
#include "grammar/budget.h"

namespace quire::cli {

struct GrammarCheck {
  std::optional<std::string> error;  // why it did not compile; the rest is empty then
  double compile_ms = 0;
  std::vector<bool> accepted;  // for each text

  bool has_masks = false;          // with a model:
  std::vector<MaskedText> masked;  // for each text
};

// A malformed line counts as a constraint that does not compile; the error opens with `where`.
// Without `masks` nothing is generated.
GrammarCheck check_grammar_line(std::string_view line, std::string_view where,
                                const grammar::CompileLimits& limits, const MaskChecker* masks,
                                const grammar::GenerationOptions& generation, bool keeps_masks);

struct MaskTimes {
  double mean = 0;
  double p99 = 0;
  double max = 0;
};
// For all texts together; nothing without masks.
std::optional<MaskTimes> mask_times(const GrammarCheck& check);

// {"compiled": true, ...} in one line, without its line feed.
std::string to_json_line(const GrammarCheck& check);

}  // namespace quire::cli
