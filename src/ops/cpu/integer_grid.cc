#include "ops/cpu/integer_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/cpu_features.h"
#include "ops/cpu/dispatch.h"

namespace quire::ops {
namespace {

// Ranges end up to this many half steps within the values.
constexpr int kHalfSteps = 4;

float scale_as_stored(DType dtype, double scale) {
  const auto rounded = static_cast<float>(scale);
  switch (dtype) {
    case DType::kBFloat16:
      return static_cast<float>(BFloat16(rounded));
    case DType::kFloat16:
      return static_cast<float>(Float16(rounded));
    default:
      return rounded;
  }
}

GroupRounding rounding_of(const IntegerType& type, const IntegerGrid& grid) {
  return {.inverse = 1.0f / grid.scale,
          .shift = grid.zero_point,
          .low = type.lowest(),
          .high = type.highest()};
}

// Tries grids for a group and keeps the best.
class GridSearch {
 public:
  GridSearch(const IntegerType& type, const float* values, int count, const GroupSums& sums)
      : type_(type),
        kernels_(kernels_for(best_isa())),
        values_(values),
        count_(count),
        sums_(sums) {}

  // Tries a grid, and the scale that its integers would have by least squares.
  void attempt(double scale, float zero_point) {
    const double better = measure(scale, zero_point);
    if (better > 0) measure(better, zero_point);
  }
  const IntegerGrid& best() const { return best_; }

 private:
  // Returns the scale of the least squared error for the grid's integers; 0: there is none.
  double measure(double scale, float zero_point) {
    const IntegerGrid grid = {scale_as_stored(type_.scale_dtype, scale), zero_point};
    const GroupRounding rounding = rounding_of(type_, grid);
    if (!std::isfinite(grid.scale) || !std::isfinite(rounding.inverse)) return 0;
    GroupFit fit;
    kernels_.fit_group(values_, count_, rounding, &fit);
    const double zero = zero_point;
    const double products = fit.products - zero * sums_.sum;
    const double squares = fit.squares - 2 * zero * fit.integers + zero * zero * count_;
    const double error = sums_.squares - 2 * grid.scale * products +
                         static_cast<double>(grid.scale) * grid.scale * squares;
    if (error < least_) {
      least_ = error;
      best_ = grid;
    }
    return squares > 0 ? products / squares : 0;
  }

  const IntegerType& type_;
  const Kernels& kernels_;
  const float* values_;
  int count_;
  const GroupSums& sums_;
  IntegerGrid best_;
  double least_ = std::numeric_limits<double>::infinity();
};

void try_symmetric(const IntegerType& type, const GroupSums& sums, GridSearch& search) {
  const double largest = std::max(-sums.low, sums.high);
  for (int i = 0; i <= 2 * kHalfSteps; ++i)
    search.attempt(largest / (type.highest() + 0.25 * i), 0);
}

// Zero lies within the range, as its zero point is one of the integers.
void try_with_zero_points(const IntegerType& type, const GroupSums& sums, GridSearch& search) {
  const double low = std::min(sums.low, 0.0f);
  const double high = std::max(sums.high, 0.0f);
  const double steps = type.highest() - type.lowest();
  const double half_step = (high - low) / (2 * steps);
  for (int below = 0; below <= kHalfSteps; ++below) {
    for (int above = 0; above <= kHalfSteps; ++above) {
      const double scale = (high - low - (below + above) * half_step) / steps;
      const double zero_point = type.lowest() - (low + below * half_step) / scale;
      search.attempt(scale, std::clamp(static_cast<float>(std::nearbyint(zero_point)),
                                       type.lowest(), type.highest()));
    }
  }
}

}  // namespace

IntegerGrid fit_integer_grid(const IntegerType& type, const float* values, int count) {
  check(count > 0 && count % kGridValues == 0, "a group is filled up with zeros");
  GroupSums sums;
  kernels_for(best_isa()).sum_group(values, count, &sums);
  if (!std::isfinite(sums.squares)) return {.scale = std::nanf(""), .zero_point = 0};
  GridSearch search(type, values, count, sums);
  if (type.symmetric) {
    try_symmetric(type, sums, search);
  } else {
    try_with_zero_points(type, sums, search);
  }
  return search.best();
}

void round_to_grid(const IntegerType& type, const IntegerGrid& grid, const float* values, int count,
                   int8_t* integers) {
  kernels_for(best_isa()).round_group(values, count, rounding_of(type, grid), integers);
}

}  // namespace quire::ops
