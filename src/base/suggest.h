#pragma once
// Finds what a mistyped name was meant to be.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// The candidate with the fewest edits (insertions, deletions, changes, swaps of neighbours) from
// `name`, if these are one or at most a third of its length. A single letter is close to nothing,
// as one edit leads to every other letter.
std::optional<std::string> closest_name(std::string_view name,
                                        const std::vector<std::string>& candidates);

// "; did you mean top_p?", or "" where nothing is close.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace quire
