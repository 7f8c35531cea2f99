// Online softmax over tiles of kAttentionTile tokens (see attention_cpu.cc), all rows of a task for
// each tile, so that a tile of keys and values is read from memory once. Every row does the same
// operations in the same order however many rows there are.
#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/exp_avx512.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::avx512vnni {
namespace {

using avx512::exp_ps;
using avx512::first_lanes;
using avx512::sum_of;

constexpr int kTileVectors = kAttentionTile / kKeyLanes;
constexpr float kMinusInfinity = -__builtin_inff();

// The two halves of 16 pairs of bfloat16, as float32.
__m512 first_of_pairs(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
__m512 second_of_pairs(__m512i pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

constexpr int bytes_of(KvFormat format) {
  return format == KvFormat::kF32 ? 4 : format == KvFormat::kBf16 ? 2 : 1;
}

// The 16 tokens from `position` on (a multiple of 16): where their keys or values are, and, of
// int8, their scales.
const char* block_at(const AttentionTask& task, const void* base, int64_t position) {
  return static_cast<const char*>(base) +
         task.block_table[position / task.block_size] * task.block_bytes;
}
const char* lanes_at(const AttentionTask& task, const void* base, int64_t position,
                     KvFormat format) {
  return block_at(task, base, position) +
         position % task.block_size * task.head_dim * bytes_of(format);
}
const float* scales_at(const AttentionTask& task, const void* base, int64_t position) {
  return reinterpret_cast<const float*>(block_at(task, base, position) +
                                        int64_t{task.block_size} * task.head_dim) +
         position % task.block_size;
}

struct KeyTile {
  const char* keys[kTileVectors];
  const char* values[kTileVectors];
  const float* key_scales[kTileVectors];  // of int8
  const float* value_scales[kTileVectors];
};

// Vectors past the last token that any row sees are not looked up: their blocks may not exist.
KeyTile find_tile(const AttentionTask& task, int64_t tile, int64_t last_position, KvFormat format) {
  KeyTile found = {};
  for (int i = 0; i < kTileVectors; ++i) {
    const int64_t position = tile + i * kKeyLanes;
    const int64_t known = position <= last_position ? position : tile;
    found.keys[i] = lanes_at(task, task.keys, known, format);
    found.values[i] = lanes_at(task, task.values, known, format);
    if (format == KvFormat::kI8) {
      found.key_scales[i] = scales_at(task, task.keys, known);
      found.value_scales[i] = scales_at(task, task.values, known);
    }
  }
  return found;
}

// 32 numbers of float8. Those of e5m2 are the upper bytes of float16. Those of e4m3 are shifted
// into the fields of a float16, whose exponent has another bias: they are divided by 256. 0x7f is
// NaN.
template <KvFormat kFormat>
void widen_f8(__m256i bytes, __m512& low, __m512& high) {
  if constexpr (kFormat == KvFormat::kF8E5M2) {
    const __m512i whole = _mm512_slli_epi16(_mm512_cvtepu8_epi16(bytes), 8);
    low = _mm512_cvtph_ps(_mm512_castsi512_si256(whole));
    high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(whole, 1));
    return;
  }
  const __m512i shifted = _mm512_slli_epi16(_mm512_cvtepi8_epi16(bytes), 7);
  const __m512i all_ones = _mm512_set1_epi16(0x3f80);
  const __mmask32 nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(shifted, all_ones), all_ones);
  __m512i halves = _mm512_and_si512(shifted, _mm512_set1_epi16(static_cast<int16_t>(0xbfff)));
  halves = _mm512_mask_mov_epi16(halves, nan, _mm512_set1_epi16(0x7e00));
  low = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
  high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
}
constexpr float kE4M3Factor = 256.0f;
// Scores, and weights of values, are multiplied by this to make up for widen_f8().
constexpr float factor_of(KvFormat format) {
  return format == KvFormat::kF8E4M3 ? kE4M3Factor : 1.0f;
}

// One query of one head, and what the online softmax keeps of it.
struct Row {
  const float* q;
  const int16_t* q_integers;  // of an int8 cache
  float* out;
  int64_t position;
  float scale;  // of the sums of products with keys
  float maximum;
  float denominator;
};

static_assert(sizeof(Row) <= kAttentionRowBytes);

__m512i broadcast_pair(const int16_t* integers) {
  int pair;
  __builtin_memcpy(&pair, integers, sizeof(pair));
  return _mm512_set1_epi32(pair);
}

// Sums of products of kRows queries with the tile's keys of int8, as integers, times the keys'
// scales.
template <int kRows>
void score_tile_i8(const KeyTile& tile, const Row* rows, int head_dim,
                   __m512 (&scores)[kRows][kTileVectors]) {
  __m512i sums[kRows][kTileVectors];  // local, so that they stay in registers
  for (int row = 0; row < kRows; ++row) {
    for (__m512i& sum : sums[row]) sum = _mm512_setzero_si512();
  }
  for (int d = 0; d < head_dim; d += 4) {
    for (int i = 0; i < kTileVectors; ++i) {
      const __m512i keys = _mm512_loadu_si512(tile.keys[i] + d * kKeyLanes);
      const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(keys, 8), 8);
      const __m512i odd = _mm512_srai_epi16(keys, 8);
      for (int row = 0; row < kRows; ++row) {
        const int16_t* q = rows[row].q_integers + d;
        sums[row][i] = _mm512_dpwssd_epi32(sums[row][i], even, broadcast_pair(q));
        sums[row][i] = _mm512_dpwssd_epi32(sums[row][i], odd, broadcast_pair(q + 2));
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kTileVectors; ++i) {
      scores[row][i] =
          _mm512_mul_ps(_mm512_cvtepi32_ps(sums[row][i]), _mm512_loadu_ps(tile.key_scales[i]));
    }
  }
}

// Scores of the tile's tokens for kRows queries, but for their scales; keys are loaded and widened
// once for all of them.
template <KvFormat kFormat, int kRows>
void score_tile(const KeyTile& tile, const Row* rows, int head_dim,
                __m512 (&scores)[kRows][kTileVectors]) {
  if constexpr (kFormat == KvFormat::kI8) return score_tile_i8<kRows>(tile, rows, head_dim, scores);
  __m512 sums[kRows][kTileVectors];  // local, so that they stay in registers
  for (int row = 0; row < kRows; ++row) {
    for (__m512& sum : sums[row]) sum = _mm512_setzero_ps();
  }
  for (int d = 0; d < head_dim; d += 2) {
    for (int i = 0; i < kTileVectors; ++i) {
      __m512 key0;
      __m512 key1;
      if constexpr (kFormat == KvFormat::kBf16) {
        const __m512i pairs = _mm512_loadu_si512(tile.keys[i] + d * kKeyLanes * 2);
        key0 = first_of_pairs(pairs);
        key1 = second_of_pairs(pairs);
      } else if constexpr (is_float8(kFormat)) {
        widen_f8<kFormat>(
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile.keys[i] + d * kKeyLanes)),
            key0, key1);
      } else {
        const auto* keys = reinterpret_cast<const float*>(tile.keys[i]) + d * kKeyLanes;
        key0 = _mm512_loadu_ps(keys);
        key1 = _mm512_loadu_ps(keys + kKeyLanes);
      }
      for (int row = 0; row < kRows; ++row) {
        const float* q = rows[row].q;
        sums[row][i] = _mm512_fmadd_ps(_mm512_set1_ps(q[d]), key0, sums[row][i]);
        sums[row][i] = _mm512_fmadd_ps(_mm512_set1_ps(q[d + 1]), key1, sums[row][i]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kTileVectors; ++i) scores[row][i] = sums[row][i];
  }
}

// The part of a tile that a row sees, and its probabilities.
struct Seen {
  int begin;
  int end;  // begin == end: nothing
  alignas(64) float p[kAttentionTile];
};

// Adds p * value for one token, or for the two of a pair, to the sums of kRows rows by kVectors x
// 16 elements. kMasked: of the last vector only `last_lanes` exist.
template <KvFormat kFormat, int kRows, int kVectors, bool kMasked>
class ValueSums {
 public:
  ValueSums(float* const* out, int d, __mmask16 last_lanes) : last_lanes_(last_lanes) {
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < kVectors; ++i) sums_[row][i] = load(out[row] + d + i * 16, i);
    }
  }

  void store(float* const* out, int d) const {
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < kVectors; ++i) {
        _mm512_mask_storeu_ps(out[row] + d + i * 16, lanes(i), sums_[row][i]);
      }
    }
  }

  // `values`: of the first element of the token, or of its pair; `second`: the second of a pair.
  void add_one(const char* values, bool second, const float* const* p, int token) {
    if constexpr (is_float8(kFormat)) return add_float8(values, p, token);
    for (int i = 0; i < kVectors; ++i) {
      if constexpr (kFormat == KvFormat::kI8) {
        add(i, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_bytes(values + i * 16, i))), p, token);
        continue;
      }
      __m512 value = load(reinterpret_cast<const float*>(values) + i * 16, i);
      if constexpr (kFormat == KvFormat::kBf16) {
        const __m512i pairs = _mm512_castps_si512(value);
        value = second ? second_of_pairs(pairs) : first_of_pairs(pairs);
      }
      add(i, value, p, token);
    }
  }

  void add_pair(const char* values, const float* const* p, int token) {
    for (int i = 0; i < kVectors; ++i) {
      const __m512i pairs =
          _mm512_castps_si512(load(reinterpret_cast<const float*>(values) + i * 16, i));
      add(i, first_of_pairs(pairs), p, token);
      add(i, second_of_pairs(pairs), p, token + 1);
    }
  }

 private:
  void add_float8(const char* values, const float* const* p, int token) {
    for (int i = 0; i < kVectors; i += 2) {
      __m512 low, high;
      if constexpr (kVectors % 2 == 0) {
        widen_f8<kFormat>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i * 16)),
                          low, high);
        add(i + 1, high, p, token);
      } else {
        widen_f8<kFormat>(_mm256_castsi128_si256(load_bytes(values, i)), low, high);
      }
      add(i, low, p, token);
    }
  }

  __mmask16 lanes(int i) const {
    return kMasked && i + 1 == kVectors ? last_lanes_ : __mmask16(0xffff);
  }
  __m512 load(const float* from, int i) const {
    return kMasked ? _mm512_maskz_loadu_ps(lanes(i), from) : _mm512_loadu_ps(from);
  }
  __m128i load_bytes(const char* from, int i) const {
    return kMasked ? _mm_maskz_loadu_epi8(lanes(i), from)
                   : _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  void add(int i, __m512 value, const float* const* p, int token) {
    for (int row = 0; row < kRows; ++row) {
      sums_[row][i] = _mm512_fmadd_ps(_mm512_set1_ps(p[row][token]), value, sums_[row][i]);
    }
  }

  __m512 sums_[kRows][kVectors];
  __mmask16 last_lanes_;
};

// out[d] += sum over tokens [begin, end) of the tile of p[token] * value[token][d], in order of
// tokens, for kRows rows and kVectors x 16 elements from `d` on.
template <KvFormat kFormat, int kRows, int kVectors, bool kMasked = false>
void add_values(const KeyTile& tile, const float* const* p, float* const* out, int begin, int end,
                int head_dim, int d, __mmask16 last_lanes = 0xffff) {
  constexpr bool kPairs = kFormat == KvFormat::kBf16;
  constexpr int kStepBytes = kPairs ? 4 : bytes_of(kFormat);
  ValueSums<kFormat, kRows, kVectors, kMasked> sums(out, d, last_lanes);
  const auto values_of = [&](int token) {
    const int steps = kPairs ? token % kKeyLanes / 2 : token % kKeyLanes;
    return tile.values[token / kKeyLanes] + (steps * head_dim + d) * kStepBytes;
  };
  int token = begin;
  if constexpr (kPairs) {
    if (token % 2 != 0 && token < end) {
      sums.add_one(values_of(token), true, p, token);
      ++token;
    }
    for (; token + 2 <= end; token += 2) sums.add_pair(values_of(token), p, token);
  }
  for (; token < end; ++token) sums.add_one(values_of(token), false, p, token);
  sums.store(out, d);
}

template <KvFormat kFormat, int kRows>
void add_all_values(const KeyTile& tile, const float* const* p, float* const* out, int begin,
                    int end, int head_dim) {
  if (begin >= end) return;
  int d = 0;
  for (; d + 128 <= head_dim; d += 128) {
    add_values<kFormat, kRows, 8>(tile, p, out, begin, end, head_dim, d);
  }
  for (; d + 64 <= head_dim; d += 64) {
    add_values<kFormat, kRows, 4>(tile, p, out, begin, end, head_dim, d);
  }
  for (; d < head_dim; d += 16) {
    add_values<kFormat, kRows, 1, true>(tile, p, out, begin, end, head_dim, d,
                                        first_lanes(head_dim - d));
  }
}

// Two rows together where both see a token; one row by itself where only it does. So each row
// adds its tokens in order, as it would by itself.
template <KvFormat kFormat>
void add_values_of_two(const KeyTile& tile, const Seen* seen, Row* rows, int head_dim) {
  const float* both_p[2] = {seen[0].p, seen[1].p};
  float* both_out[2] = {rows[0].out, rows[1].out};
  int begin = seen[0].begin > seen[1].begin ? seen[0].begin : seen[1].begin;
  int end = seen[0].end < seen[1].end ? seen[0].end : seen[1].end;
  if (begin >= end) begin = end = 0;
  for (int i = 0; i < 2; ++i) {
    const int until = begin < end ? begin : seen[i].end;
    add_all_values<kFormat, 1>(tile, both_p + i, both_out + i, seen[i].begin, until, head_dim);
  }
  add_all_values<kFormat, 2>(tile, both_p, both_out, begin, end, head_dim);
  for (int i = 0; i < 2 && begin < end; ++i) {
    add_all_values<kFormat, 1>(tile, both_p + i, both_out + i, end, seen[i].end, head_dim);
  }
}

// Turns a row's scores into probabilities relative to its maximum so far, and scales what it has.
void softmax_tile(const AttentionTask& task, int64_t first_key, __m512 (&scores)[kTileVectors],
                  Row& row, Seen& seen) {
  const int64_t first_seen = task.window > 0 ? row.position - task.window + 1 : 0;
  const int64_t past_seen = row.position + 1 - first_key;
  seen.begin = static_cast<int>(first_seen > first_key ? first_seen - first_key : 0);
  seen.end = static_cast<int>(past_seen < kAttentionTile ? past_seen : kAttentionTile);
  if (seen.begin >= seen.end) {
    seen.begin = seen.end = 0;
    return;
  }
  const __m512 scale = _mm512_set1_ps(row.scale);
  __m512 largest = _mm512_set1_ps(row.maximum);
  for (int i = 0; i < kTileVectors; ++i) {
    const auto visible = static_cast<__mmask16>(first_lanes(seen.end - i * kKeyLanes) &
                                                ~first_lanes(seen.begin - i * kKeyLanes));
    scores[i] = _mm512_mask_mul_ps(_mm512_set1_ps(kMinusInfinity), visible, scores[i], scale);
    largest = _mm512_max_ps(largest, scores[i]);
  }
  float lanes[16];
  _mm512_storeu_ps(lanes, largest);
  float maximum = lanes[0];
  for (float lane : lanes) maximum = lane > maximum ? lane : maximum;

  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < kTileVectors; ++i) {
    const __m512 probability = exp_ps(_mm512_sub_ps(scores[i], _mm512_set1_ps(maximum)));
    _mm512_store_ps(seen.p + i * kKeyLanes, probability);
    sum = _mm512_add_ps(sum, probability);
  }
  if (maximum != row.maximum) {
    const __m512 correction = exp_ps(_mm512_set1_ps(row.maximum - maximum));
    row.denominator *= _mm512_cvtss_f32(correction);
    for (int d = 0; d < task.head_dim; d += 16) {
      const __mmask16 part = first_lanes(task.head_dim - d);
      const __m512 value = _mm512_maskz_loadu_ps(part, row.out + d);
      _mm512_mask_storeu_ps(row.out + d, part, _mm512_mul_ps(value, correction));
    }
    row.maximum = maximum;
  }
  row.denominator += sum_of(sum);
}

// What the probabilities of the tile's tokens are multiplied with where their values are.
template <KvFormat kFormat>
void scale_weights(const KeyTile& tile, float* p) {
  if constexpr (kFormat != KvFormat::kF8E4M3 && kFormat != KvFormat::kI8) return;
  for (int i = 0; i < kTileVectors; ++i) {
    const __m512 factor = kFormat == KvFormat::kF8E4M3 ? _mm512_set1_ps(kE4M3Factor)
                                                       : _mm512_loadu_ps(tile.value_scales[i]);
    _mm512_store_ps(p + i * kKeyLanes, _mm512_mul_ps(_mm512_load_ps(p + i * kKeyLanes), factor));
  }
}

// kRows rows (1, 2 or 4) of a task and one tile.
template <KvFormat kFormat, int kRows>
void attend_tile(const AttentionTask& task, const KeyTile& tile, int64_t first_key, Row* rows) {
  __m512 scores[kRows][kTileVectors];
  score_tile<kFormat, kRows>(tile, rows, task.head_dim, scores);
  Seen seen[kRows];
  for (int row = 0; row < kRows; ++row) {
    softmax_tile(task, first_key, scores[row], rows[row], seen[row]);
    if (seen[row].begin < seen[row].end) scale_weights<kFormat>(tile, seen[row].p);
  }
  if constexpr (kRows == 1) {
    const float* p = seen[0].p;
    add_all_values<kFormat, 1>(tile, &p, &rows[0].out, seen[0].begin, seen[0].end, task.head_dim);
  } else {
    for (int row = 0; row < kRows; row += 2) {
      add_values_of_two<kFormat>(tile, seen + row, rows + row, task.head_dim);
    }
  }
}

template <KvFormat kFormat>
int start_rows(const AttentionTask& task, Row* rows) {
  int count = 0;
  for (int token = 0; token < task.tokens; ++token) {
    for (int head = 0; head < task.heads; ++head) {
      const int64_t column = int64_t{head} * task.head_dim;
      Row& row = rows[count];
      row.q = task.q + token * task.q_stride + column;
      row.q_integers = nullptr;
      row.out = task.out + token * task.out_stride + column;
      row.position = task.first_position + token;
      row.scale = task.scale * factor_of(kFormat);
      row.maximum = kMinusInfinity;
      row.denominator = 0.0f;
      if constexpr (kFormat == KvFormat::kI8) {
        row.q_integers = task.q_integers + int64_t{count} * task.head_dim;
        row.scale = task.scale * task.q_scales[count];
      }
      for (int d = 0; d < task.head_dim; ++d) row.out[d] = 0.0f;
      ++count;
    }
  }
  return count;
}

template <KvFormat kFormat>
void attend(const AttentionTask& task) {
  Row* rows = static_cast<Row*>(task.scratch);
  const int num_rows = start_rows<kFormat>(task, rows);
  const int64_t newest = task.first_position + task.tokens - 1;
  const int64_t last_position = newest < task.end - 1 ? newest : task.end - 1;
  const int64_t first_seen = task.window > 0 ? task.first_position - task.window + 1 : 0;
  const int64_t first_key = first_seen > task.begin ? first_seen : task.begin;
  for (int64_t key = first_key / kAttentionTile * kAttentionTile; key <= last_position;
       key += kAttentionTile) {
    const KeyTile tile = find_tile(task, key, last_position, kFormat);
    int row = 0;
    for (; row + 4 <= num_rows; row += 4) attend_tile<kFormat, 4>(task, tile, key, rows + row);
    for (; row + 2 <= num_rows; row += 2) attend_tile<kFormat, 2>(task, tile, key, rows + row);
    for (; row < num_rows; ++row) attend_tile<kFormat, 1>(task, tile, key, rows + row);
  }
  for (int row = 0; row < num_rows; ++row) {
    task.maxima[row] = rows[row].maximum;
    task.denominators[row] = rows[row].denominator;
  }
}

}  // namespace

void attention_f32(const AttentionTask& task) {
  attend<KvFormat::kF32>(task);
}
void attention_bf16(const AttentionTask& task) {
  attend<KvFormat::kBf16>(task);
}
void attention_e4m3(const AttentionTask& task) {
  attend<KvFormat::kF8E4M3>(task);
}
void attention_e5m2(const AttentionTask& task) {
  attend<KvFormat::kF8E5M2>(task);
}
void attention_i8(const AttentionTask& task) {
  attend<KvFormat::kI8>(task);
}

}  // namespace quire::ops::avx512vnni
