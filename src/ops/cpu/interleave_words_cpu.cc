// SSE2, which every x86-64 has.
#include <emmintrin.h>

#include "ops/cpu/kernels.h"

namespace quire::ops::scalar {
namespace {

constexpr int64_t kWordBytes = 4;
constexpr int64_t kWordStepBytes = kPanelLanes * kWordBytes;
// Words of a row that are read at once: two lines, which are fetched together; the steps that they
// go to, 8 KB, stay in the L1 cache until the panel's other rows have filled their lines.
constexpr int64_t kBlockWords = 32;

// The four halves of 16 bits as the low halves of four bytes.
__m128i spread_halves(__m128i halves) {
  const __m128i pairs =
      _mm_and_si128(_mm_or_si128(halves, _mm_slli_epi32(halves, 8)), _mm_set1_epi32(0x00ff00ff));
  return _mm_and_si128(_mm_or_si128(pairs, _mm_slli_epi32(pairs, 4)), _mm_set1_epi32(0x0f0f0f0f));
}

struct WordOrder {
  bool orders_halves;
  __m128i flip;

  __m128i apply(__m128i words) const {
    if (orders_halves) {
      const __m128i first = spread_halves(_mm_and_si128(words, _mm_set1_epi32(0xffff)));
      const __m128i second = spread_halves(_mm_srli_epi32(words, 16));
      words = _mm_or_si128(first, _mm_slli_epi32(second, 4));
    }
    return _mm_xor_si128(words, flip);
  }
};

__m128i load_words(const char* from, const WordOrder& order) {
  return order.apply(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
void store_words(char* to, __m128i words) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
}

// Four words of four rows.
void interleave_four(const char* in, int64_t row_bytes, const WordOrder& order, char* out) {
  const __m128i a = load_words(in, order);
  const __m128i b = load_words(in + row_bytes, order);
  const __m128i c = load_words(in + 2 * row_bytes, order);
  const __m128i d = load_words(in + 3 * row_bytes, order);
  const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
  const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
  store_words(out, _mm_unpacklo_epi64(ab_low, cd_low));
  store_words(out + kWordStepBytes, _mm_unpackhi_epi64(ab_low, cd_low));
  store_words(out + 2 * kWordStepBytes, _mm_unpacklo_epi64(ab_high, cd_high));
  store_words(out + 3 * kWordStepBytes, _mm_unpackhi_epi64(ab_high, cd_high));
}

// One row.
void spread_words(const char* in, int64_t words, const WordOrder& order, char* out) {
  for (int64_t word = 0; word < words; ++word) {
    int value;
    __builtin_memcpy(&value, in + word * kWordBytes, kWordBytes);
    value = _mm_cvtsi128_si32(order.apply(_mm_cvtsi32_si128(value)));
    __builtin_memcpy(out + word * kWordStepBytes, &value, kWordBytes);
  }
}

// Words that lie in neighbouring steps.
void interleave_steps(const char* in, int64_t row_bytes, int64_t rows, int64_t words,
                      const WordOrder& order, char* out) {
  const int64_t by_four = words / 4 * 4;
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4, in += 4 * row_bytes, out += 4 * kWordBytes) {
    for (int64_t word = 0; word < by_four; word += 4) {
      interleave_four(in + word * kWordBytes, row_bytes, order, out + word * kWordStepBytes);
    }
    for (int64_t i = 0; i < 4 && by_four < words; ++i) {
      spread_words(in + i * row_bytes + by_four * kWordBytes, words - by_four, order,
                   out + i * kWordBytes + by_four * kWordStepBytes);
    }
  }
  for (; row < rows; ++row, in += row_bytes, out += kWordBytes) {
    spread_words(in, words, order, out);
  }
}

int64_t fewest(int64_t a, int64_t b) {
  return a < b ? a : b;
}

}  // namespace

void interleave(const WordRows& rows) {
  const auto* const in = static_cast<const char*>(rows.in);
  auto* const out = static_cast<char*>(rows.out);
  const WordOrder order{rows.orders_halves, _mm_set1_epi32(static_cast<int>(rows.flip))};
  for (int64_t first = 0; first < rows.words;) {
    const int64_t step = first % rows.group_words;
    const int64_t count = fewest(fewest(kBlockWords, rows.words - first), rows.group_words - step);
    interleave_steps(in + first * kWordBytes, rows.row_bytes, rows.rows, count, order,
                     out + first / rows.group_words * rows.group_bytes + step * kWordStepBytes);
    first += count;
  }
}

}  // namespace quire::ops::scalar
