#pragma once
// What happens to the matches of a pattern and the text between them: the `behavior` of
// tokenizer.json.
#include <cstddef>
#include <vector>

#include "tokenizer/json_field.h"

namespace quire::tokenizer_internal {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

SplitBehavior parse_split_behavior(const JsonField& field);

// A stretch of a text: a match, or what lies between two.
struct Stretch {
  std::size_t start;
  std::size_t end;
  bool is_match;
};

// The stretches to keep, in order; the input covers the text without overlap.
std::vector<Stretch> apply_split_behavior(std::vector<Stretch> stretches, SplitBehavior behavior);

}  // namespace quire::tokenizer_internal
