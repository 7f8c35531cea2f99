#include "tokenizer/split_pattern.h"

#include <algorithm>
#include <string>

namespace quire::tokenizer_internal {
namespace {

// Joins neighbours for which `joins(is_match, is_previous_match)` holds.
template <typename Joins>
std::vector<Stretch> join_neighbours(const std::vector<Stretch>& stretches, Joins joins) {
  std::vector<Stretch> out;
  bool previous_match = false;
  for (const Stretch& stretch : stretches) {
    if (joins(stretch.is_match, previous_match) && !out.empty()) {
      out.back().start = std::min(out.back().start, stretch.start);
      out.back().end = std::max(out.back().end, stretch.end);
    } else {
      out.push_back(stretch);
    }
    previous_match = stretch.is_match;
  }
  return out;
}

}  // namespace

SplitBehavior parse_split_behavior(const JsonField& field) {
  const std::string& name = field.as_string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  field.unsupported(name, "Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous");
}

std::vector<Stretch> apply_split_behavior(std::vector<Stretch> stretches, SplitBehavior behavior) {
  const auto starts_run = [](bool match, bool previous) { return match && !previous; };
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return stretches;
    case SplitBehavior::kRemoved:
      std::erase_if(stretches, [](const Stretch& s) { return s.is_match; });
      return stretches;
    case SplitBehavior::kContiguous:
      return join_neighbours(stretches,
                             [](bool match, bool previous) { return match == previous; });
    case SplitBehavior::kMergedWithPrevious:
      return join_neighbours(stretches, starts_run);
    case SplitBehavior::kMergedWithNext: {
      std::ranges::reverse(stretches);
      auto out = join_neighbours(stretches, starts_run);
      std::ranges::reverse(out);
      return out;
    }
  }
  return stretches;
}

}  // namespace quire::tokenizer_internal
