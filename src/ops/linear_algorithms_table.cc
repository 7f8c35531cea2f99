// The algorithms that `quire tune` found best, by GPU and shape. Written by
// scripts/linear_algorithms_table.py from the files of `quire tune --output`.
#include <array>

#include "ops/linear_algorithms.h"

namespace quire::ops {
namespace {

constexpr std::array<LinearAlgorithmEntry, 0> kTable = {};

}  // namespace

std::span<const LinearAlgorithmEntry> built_in_linear_algorithms() {
  return kTable;
}

}  // namespace quire::ops
