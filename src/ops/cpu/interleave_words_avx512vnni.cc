// 16 words of 16 rows at a time, which fill 16 lines. A packed weight is not read soon, and often
// larger than the caches: whole lines go past them to memory, so that none is read first.
#include <immintrin.h>

#include "ops/cpu/kernels.h"

namespace quire::ops::avx512vnni {
namespace {

constexpr int kWordBytes = 4;
constexpr int kTile = 16;
constexpr int kLine = kTile * kWordBytes;
constexpr int64_t kStepBytes = kPanelLanes * kWordBytes;
// Lines ahead in a row that are asked for.
constexpr int64_t kLinesAhead = 2;

__mmask16 first_lanes(int64_t count) {
  return count >= kTile ? __mmask16(0xffff) : __mmask16((1u << count) - 1);
}

// WordRows::orders_halves: from the bytes of a word, 0 to 3, the low halves of the result are those
// of 0 (low, high) and 1 (low, high), its high halves those of 2 and 3.
__m512i in_order_of_steps(__m512i words) {
  const __m512i first = _mm512_shuffle_epi8(
      words,
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13)));
  const __m512i second =
      _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(_mm_setr_epi8(2, 2, 3, 3, 6, 6, 7, 7, 10,
                                                                      10, 11, 11, 14, 14, 15, 15)));
  const __m512i low = _mm512_set1_epi32(0x0f0f0f0f);
  const __m512i even = _mm512_set1_epi32(0x00ff00ff);
  constexpr int kSelect =
      0xca;  // of three: where the first has a bit the second's, else the third's
  const __m512i low_halves =
      _mm512_ternarylogic_epi32(even, first, _mm512_srli_epi16(first, 4), kSelect);
  const __m512i high_halves =
      _mm512_ternarylogic_epi32(even, _mm512_slli_epi16(second, 4), second, kSelect);
  return _mm512_ternarylogic_epi32(low, low_halves, high_halves, kSelect);
}

using Tile = __m512i[kTile];

// Lane i of register j becomes lane j of register i.
[[gnu::always_inline]] inline void transpose(Tile& rows) {
  Tile pairs;
#pragma GCC unroll 8
  for (int i = 0; i < kTile; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  // Word c of each four words, of four rows.
  Tile fours;
#pragma GCC unroll 4
  for (int i = 0; i < kTile; i += 4) {
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  constexpr int kEven = 0x88, kOdd = 0xdd;
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i even_low = _mm512_shuffle_i32x4(fours[c], fours[4 + c], kEven);
    const __m512i even_high = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], kEven);
    const __m512i odd_low = _mm512_shuffle_i32x4(fours[c], fours[4 + c], kOdd);
    const __m512i odd_high = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], kOdd);
    rows[c] = _mm512_shuffle_i32x4(even_low, even_high, kEven);
    rows[4 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, kEven);
    rows[8 + c] = _mm512_shuffle_i32x4(even_low, even_high, kOdd);
    rows[12 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, kOdd);
  }
}

// Where the words from `first` on go.
void set_offsets(const WordRows& rows, int64_t first, int64_t (&offsets)[kTile]) {
  int64_t step = first % rows.group_words;
  int64_t group = first / rows.group_words * rows.group_bytes;
  for (int64_t& offset : offsets) {
    offset = group + step * kStepBytes;
    if (++step < rows.group_words) continue;
    step = 0;
    group += rows.group_bytes;
  }
}

template <bool kOrdersHalves>
__m512i prepared(__m512i words, __m512i flip) {
  if (kOrdersHalves) words = in_order_of_steps(words);
  return _mm512_xor_si512(words, flip);
}

// 16 whole lines, which begin where lines do.
template <bool kOrdersHalves>
void interleave_tile(const WordRows& rows, const char* in, const int64_t (&offsets)[kTile],
                     char* out) {
  const __m512i flip = _mm512_set1_epi32(static_cast<int>(rows.flip));
  Tile tile;
#pragma GCC unroll 16
  for (int i = 0; i < kTile; ++i) {
    tile[i] = prepared<kOrdersHalves>(_mm512_loadu_si512(in + i * rows.row_bytes), flip);
  }
  transpose(tile);
#pragma GCC unroll 16
  for (int i = 0; i < kTile; ++i) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + offsets[i]), tile[i]);
  }
}

// At most 16 words of at most 16 rows.
template <bool kOrdersHalves>
void interleave_part(const WordRows& rows, const char* in, int64_t num_rows, int64_t words,
                     const int64_t (&offsets)[kTile], char* out) {
  const __m512i flip = _mm512_set1_epi32(static_cast<int>(rows.flip));
  Tile tile;
  for (int i = 0; i < kTile; ++i) {
    tile[i] = i < num_rows ? _mm512_maskz_loadu_epi32(first_lanes(words), in + i * rows.row_bytes)
                           : _mm512_setzero_si512();
    tile[i] = prepared<kOrdersHalves>(tile[i], flip);
  }
  transpose(tile);
  for (int64_t i = 0; i < words; ++i) {
    _mm512_mask_storeu_epi32(out + offsets[i], first_lanes(num_rows), tile[i]);
  }
}

// Asks for lines that are read later: of what is next one line after the other, as it is read from
// memory the fastest.
class Ahead {
 public:
  explicit Ahead(const WordRows& rows)
      : next_(static_cast<const char*>(rows.next)),
        end_(next_ + rows.next_bytes),
        row_bytes_(rows.row_bytes) {}

  // For 16 rows, of which this line is read now; `has_more`: so are lines behind it.
  void ask(const char* line, int64_t num_rows, bool has_more) {
    for (int64_t i = 0; i < num_rows && next_ < end_; ++i, next_ += kLine) {
      _mm_prefetch(next_, _MM_HINT_T1);
    }
    for (int64_t i = 0; i < num_rows && end_ == nullptr && has_more; ++i) {
      _mm_prefetch(line + i * row_bytes_ + kLinesAhead * kLine, _MM_HINT_T0);
    }
  }

 private:
  const char* next_;
  const char* end_;
  int64_t row_bytes_;
};

int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

template <bool kOrdersHalves>
void interleave_rows(const WordRows& rows) {
  auto* const out = static_cast<char*>(rows.out);
  const bool has_lines =
      reinterpret_cast<uintptr_t>(out) % kLine == 0 && rows.group_bytes % kLine == 0;
  Ahead ahead(rows);
  int64_t offsets[kTile];
  for (int64_t word = 0; word < rows.words; word += kTile) {
    const int64_t words = least(kTile, rows.words - word);
    set_offsets(rows, word, offsets);
    for (int64_t row = 0; row < rows.rows; row += kTile) {
      const int64_t num_rows = least(kTile, rows.rows - row);
      const char* const in =
          static_cast<const char*>(rows.in) + row * rows.row_bytes + word * kWordBytes;
      ahead.ask(in, num_rows, word + (kLinesAhead + 1) * kTile <= rows.words);
      if (has_lines && num_rows == kTile && words == kTile) {
        interleave_tile<kOrdersHalves>(rows, in, offsets, out + row * kWordBytes);
      } else {
        interleave_part<kOrdersHalves>(rows, in, num_rows, words, offsets, out + row * kWordBytes);
      }
    }
  }
  // Before other threads are told that the lines are written.
  _mm_sfence();
}

}  // namespace

void interleave(const WordRows& rows) {
  if (rows.orders_halves) {
    interleave_rows<true>(rows);
  } else {
    interleave_rows<false>(rows);
  }
}

}  // namespace quire::ops::avx512vnni
