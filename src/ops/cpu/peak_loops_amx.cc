#include <immintrin.h>

#include "ops/cpu/peak_loops.h"

namespace quire::ops::amx {

double peak_bf16(int64_t steps, float* sink) {
  constexpr int kSide = 16;
  struct alignas(64) {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {kSide, kSide, kSide, kSide, kSide, kSide};
  } shapes;
  alignas(64) float sums[kSide * kSide];
  for (float& sum : sums) sum = *sink + 0.5f;
  asm volatile("" : : "r"(&shapes), "r"(sums) : "memory");  // compilers are not told of the reads
  _tile_loadconfig(&shapes);
  _tile_loadd(4, sums, 64);
  _tile_loadd(5, sums, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < steps; ++step) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  float total = 0;
  const auto add = [&] {
    for (const float sum : sums) total += sum;
  };
  _tile_stored(0, sums, 64);
  add();
  _tile_stored(1, sums, 64);
  add();
  _tile_stored(2, sums, 64);
  add();
  _tile_stored(3, sums, 64);
  add();
  _tile_release();
  *sink = total;
  return static_cast<double>(steps) * 4 * kSide * kSide * 2 * kSide * 2;
}

}  // namespace quire::ops::amx
