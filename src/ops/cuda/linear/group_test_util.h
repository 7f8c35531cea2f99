#pragma once
// What the tests and benches of products of integer weights share.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "base/ceil_div.h"
#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/linear/float8_test_util.h"
#include "ops/group_tiles.h"

namespace quire::ops {

// A random weight [n, k] in a GPU's layout, with zero points that are integers, as checkpoints have
// them. With `has_odd_scales` a fourth of the groups have scales of zero, negative ones, or ones of
// another order of magnitude.
class GroupWeight {
 public:
  GroupWeight(const WeightFormat& format, int64_t n, int64_t k, bool is_permuted,
              std::mt19937& random, bool has_odd_scales = false)
      : format_(format), k_(k) {
    const bool is_int4 = format.kind == WeightKind::kInt4;
    const int low = format.is_unsigned ? 0 : is_int4 ? -8 : -128;
    const int high = low + (is_int4 ? 15 : 255);
    std::uniform_int_distribution<int> integer(low, high);
    const int64_t groups = format.group_size == 0 ? 1 : ceil_div(k, format.group_size);
    const float deviation = is_int4 ? 5 : 74;
    std::uniform_real_distribution<float> exponent(-1, 1);
    std::vector<int8_t> data;
    std::vector<float> scales;
    std::vector<float> offsets;
    for (int64_t i = 0; i < n * k; ++i) data.push_back(static_cast<int8_t>(integer(random)));
    for (int64_t i = 0; i < n * groups; ++i) {
      constexpr float kOdd[] = {0, -1, 1e-25f, 1e-6f, 100};
      const float factor = has_odd_scales && i % 4 == 3 ? kOdd[i / 4 % 5] : 1;
      scales.push_back(factor * std::exp2(exponent(random)) /
                       (deviation * std::sqrt(static_cast<float>(k))));
      offsets.push_back(-scales.back() * static_cast<float>(integer(random)));
    }
    const GroupTiles layout = group_tiles(format, n, k);
    std::vector<std::byte> tiles(index_of(layout.bytes()));
    pack_tile_rows(layout, 0,
                   {.rows = n,
                    .data = data.data(),
                    .scales = scales.data(),
                    .offsets = format.has_offsets ? offsets.data() : nullptr},
                   tiles.data());
    std::vector<int32_t> order(index_of(k));
    std::iota(order.begin(), order.end(), 0);
    if (is_permuted) std::shuffle(order.begin(), order.end(), random);
    numbers_.resize(index_of(n * k));
    std::vector<float> row(index_of(k));
    for (int64_t i = 0; i < n; ++i) {
      unpack_tile_row(layout, i, tiles.data(), row.data());
      for (int64_t j = 0; j < k; ++j) {
        numbers_[index_of(i * k + order[index_of(j)])] = row[index_of(j)];
      }
    }
    tiles_.emplace(tiles);
    if (is_permuted) permutation_.emplace(order);
  }

  WeightView view() {
    return {.format = format_,
            .data = tiles_->data(),
            .permutation = permutation_ ? permutation_->data() : nullptr};
  }
  // In the order of the inputs.
  const float* row(int64_t n) const { return &numbers_[index_of(n * k_)]; }

 private:
  WeightFormat format_;
  int64_t k_;
  std::vector<float> numbers_;
  std::optional<DeviceArray<std::byte>> tiles_;
  std::optional<DeviceArray<int32_t>> permutation_;
};

}  // namespace quire::ops
