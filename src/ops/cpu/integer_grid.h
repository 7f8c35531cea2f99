#pragma once
// Rounds groups of a dense weight to integers with a scale and an integer zero point, as
// checkpoints store them: a number is scale * (integer - zero point). Formats that are never stored
// have offsets instead (ops/cpu/quantise.h).
//
// Thread safety: free functions without state.
#include <cstdint>

#include "core/dtype.h"

namespace quire::ops {

// Integers of `bits` (4 or 8) bits are signed, from -2^(bits-1) to 2^(bits-1) - 1.
struct IntegerType {
  int bits = 4;
  bool symmetric = true;                 // the zero point is 0
  DType scale_dtype = DType::kBFloat16;  // as which scales are stored: float32, bfloat16, float16

  float lowest() const { return static_cast<float>(-(1 << (bits - 1))); }
  float highest() const { return static_cast<float>((1 << (bits - 1)) - 1); }
};

// The numbers that the integers of a group mean.
struct IntegerGrid {
  float scale = 1;  // finite and > 0, as it is stored; 1 for a group of zeros
  float zero_point = 0;

  float value(int8_t integer) const { return scale * (static_cast<float>(integer) - zero_point); }
};

// Groups of values are padded with zeros to a multiple of this for the functions below.
inline constexpr int kGridValues = 16;

// The grid with the least squared error found for `count` values, a multiple of kGridValues:
// several ranges that end at or within the values are tried, and for each range's integers the
// scale with the least squared error. A group with a value that is not finite, or whose square is
// not, has the scale NaN.
IntegerGrid fit_integer_grid(const IntegerType& type, const float* values, int count);

// The integers nearest to `count` values.
void round_to_grid(const IntegerType& type, const IntegerGrid& grid, const float* values, int count,
                   int8_t* integers);

}  // namespace quire::ops
