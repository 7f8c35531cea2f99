#include "ops/cpu/interleave_words.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "ops/cpu/kernels.h"

namespace quire::ops {
namespace {

constexpr int64_t kWordBytes = 4;
constexpr int64_t kStepBytes = kPanelLanes * kWordBytes;
// Words of a row that are read at once: two lines, which are fetched together; the steps that they
// go to, 8 KB, stay in the L1 cache until the panel's other rows have filled their lines.
constexpr int64_t kBlockWords = 32;

__m128i load(const std::byte* from, __m128i flip) {
  return _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)), flip);
}
void store(std::byte* to, __m128i words) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
}

// Four words of four rows.
void interleave_four(const std::byte* in, int64_t row_bytes, __m128i flip, std::byte* out) {
  const __m128i a = load(in, flip);
  const __m128i b = load(in + row_bytes, flip);
  const __m128i c = load(in + 2 * row_bytes, flip);
  const __m128i d = load(in + 3 * row_bytes, flip);
  const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
  const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
  store(out, _mm_unpacklo_epi64(ab_low, cd_low));
  store(out + kStepBytes, _mm_unpackhi_epi64(ab_low, cd_low));
  store(out + 2 * kStepBytes, _mm_unpacklo_epi64(ab_high, cd_high));
  store(out + 3 * kStepBytes, _mm_unpackhi_epi64(ab_high, cd_high));
}

// One row.
void spread_words(const std::byte* in, int64_t words, uint32_t flip, std::byte* out) {
  for (int64_t word = 0; word < words; ++word) {
    uint32_t value;
    std::memcpy(&value, in + word * kWordBytes, kWordBytes);
    value ^= flip;
    std::memcpy(out + word * kStepBytes, &value, kWordBytes);
  }
}

}  // namespace

void interleave_words(const std::byte* in, int64_t row_bytes, int64_t rows, int64_t words,
                      uint32_t flip, std::byte* out) {
  const __m128i flips = _mm_set1_epi32(static_cast<int>(flip));
  for (int64_t first = 0; first < words; first += kBlockWords) {
    const int64_t count = std::min(kBlockWords, words - first);
    const int64_t by_four = count / 4 * 4;
    const std::byte* from = in + first * kWordBytes;
    std::byte* to = out + first * kStepBytes;
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4, from += 4 * row_bytes, to += 4 * kWordBytes) {
      for (int64_t word = 0; word < by_four; word += 4) {
        interleave_four(from + word * kWordBytes, row_bytes, flips, to + word * kStepBytes);
      }
      for (int64_t i = 0; i < 4 && by_four < count; ++i) {
        spread_words(from + i * row_bytes + by_four * kWordBytes, count - by_four, flip,
                     to + i * kWordBytes + by_four * kStepBytes);
      }
    }
    for (; row < rows; ++row, from += row_bytes, to += kWordBytes) {
      spread_words(from, count, flip, to);
    }
  }
}

}  // namespace quire::ops
