#include "ops/cuda/linear/algorithms.h"

#include <algorithm>

#include "base/check.h"

namespace quire::ops {
namespace {

bool by_shape(const LinearAlgorithmEntry& a, const LinearAlgorithmEntry& b) {
  return a.shape < b.shape;
}

// The first entry of `entries`, which are in order, that is not before `shape`.
auto entry_at(std::span<const LinearAlgorithmEntry> entries, const LinearShape& shape) {
  return std::lower_bound(entries.begin(), entries.end(), shape,
                          [](const LinearAlgorithmEntry& entry, const LinearShape& wanted) {
                            return entry.shape < wanted;
                          });
}

}  // namespace

bool same_matrix(const LinearShape& a, const LinearShape& b) {
  LinearShape moved = a;
  moved.rows = b.rows;
  return moved == b;
}

std::vector<LinearAlgorithmEntry> merge_linear_algorithms(
    std::span<const LinearAlgorithmEntry> older, std::span<const LinearAlgorithmEntry> newer) {
  std::vector<LinearAlgorithmEntry> merged(newer.begin(), newer.end());
  std::sort(merged.begin(), merged.end(), by_shape);
  const size_t num_newer = merged.size();
  for (const LinearAlgorithmEntry& entry : older) {
    if (!std::binary_search(merged.begin(), merged.begin() + static_cast<ptrdiff_t>(num_newer),
                            entry, by_shape)) {
      merged.push_back(entry);
    }
  }
  std::sort(merged.begin(), merged.end(), by_shape);
  const auto repeated =
      std::adjacent_find(merged.begin(), merged.end(),
                         [](const auto& a, const auto& b) { return a.shape == b.shape; });
  check(repeated == merged.end(), "a table of algorithms has a shape once");
  return merged;
}

LinearAlgorithms::LinearAlgorithms() : LinearAlgorithms(std::vector<LinearAlgorithmEntry>()) {}

LinearAlgorithms::LinearAlgorithms(const std::vector<LinearAlgorithmEntry>& entries)
    : entries_(merge_linear_algorithms(built_in_linear_algorithms(), entries)) {}

std::optional<LinearAlgorithm> LinearAlgorithms::find(const LinearShape& shape) const {
  const auto entry = entry_at(entries_, shape);
  const bool speaks = entry != entries().end() && same_matrix(entry->shape, shape) &&
                      shape.rows > entry->shape.rows / 2;
  return speaks ? entry->algorithm : std::nullopt;
}

}  // namespace quire::ops
