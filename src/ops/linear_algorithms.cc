#include "ops/linear_algorithms.h"

#include <algorithm>
#include <utility>

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

bool has_matrix(std::span<const LinearAlgorithmEntry> entries, LinearShape shape) {
  shape.rows = 0;
  const auto entry = entry_at(entries, shape);
  return entry != entries.end() && same_matrix(entry->shape, shape);
}

}  // namespace

bool same_matrix(const LinearShape& a, const LinearShape& b) {
  LinearShape moved = a;
  moved.rows = b.rows;
  return moved == b;
}

LinearAlgorithms::LinearAlgorithms() : LinearAlgorithms(std::vector<LinearAlgorithmEntry>()) {}

LinearAlgorithms::LinearAlgorithms(std::vector<LinearAlgorithmEntry> entries)
    : entries_(std::move(entries)) {
  std::sort(entries_.begin(), entries_.end(), by_shape);
  const auto repeated =
      std::adjacent_find(entries_.begin(), entries_.end(),
                         [](const auto& a, const auto& b) { return a.shape == b.shape; });
  check(repeated == entries_.end(), "a table of algorithms has a shape once");
  std::vector<LinearAlgorithmEntry> others;
  for (const LinearAlgorithmEntry& entry : built_in_linear_algorithms()) {
    if (!has_matrix(entries_, entry.shape)) others.push_back(entry);
  }
  entries_.insert(entries_.end(), others.begin(), others.end());
  std::sort(entries_.begin(), entries_.end(), by_shape);
}

std::optional<LinearAlgorithm> LinearAlgorithms::find(const LinearShape& shape) const {
  const auto entry = entry_at(entries_, shape);
  const bool speaks = entry != entries().end() && same_matrix(entry->shape, shape) &&
                      shape.rows > entry->shape.rows / 2;
  return speaks ? entry->algorithm : std::nullopt;
}

}  // namespace quire::ops
