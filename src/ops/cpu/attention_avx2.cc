// attention_avx512vnni.cc with registers of half the width.
#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/exp_avx2.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::avx2 {
namespace {

constexpr int kTileVectors = kAttentionTile / kKeyLanes;
constexpr int kScoreRegisters = kAttentionTile / 8;
constexpr float kMinusInfinity = -__builtin_inff();

__m256 first_of_pairs(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
__m256 second_of_pairs(__m256i pairs) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
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

// 16 numbers of float8. Those of e5m2 are the upper bytes of float16. Those of e4m3 are shifted
// into the fields of a float16, whose exponent has another bias: they are divided by 256. 0x7f is
// NaN.
template <KvFormat kFormat>
void widen_f8(__m128i bytes, __m256& low, __m256& high) {
  if constexpr (kFormat == KvFormat::kF8E5M2) {
    const __m256i whole = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
    low = _mm256_cvtph_ps(_mm256_castsi256_si128(whole));
    high = _mm256_cvtph_ps(_mm256_extracti128_si256(whole, 1));
    return;
  }
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
  const __m256i all_ones = _mm256_set1_epi16(0x3f80);
  const __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(shifted, all_ones), all_ones);
  const __m256i halves = _mm256_or_si256(
      _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<int16_t>(0xbfff))), nan);
  low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}
constexpr float kE4M3Factor = 256.0f;
// Scores, and weights of values, are multiplied by this to make up for widen_f8().
constexpr float factor_of(KvFormat format) {
  return format == KvFormat::kF8E4M3 ? kE4M3Factor : 1.0f;
}

// A query of a head: its row, and the factor of the sums of its products with keys.
struct Query {
  const float* values;
  const int16_t* integers;  // of an int8 cache
  float scale;
};

__m256i broadcast_pair(const int16_t* integers) {
  int pair;
  __builtin_memcpy(&pair, integers, sizeof(pair));
  return _mm256_set1_epi32(pair);
}

// Sums of products with the keys of 8 tokens by 4 elements, as integers.
__m256i add_products(__m256i sum, __m256i keys, __m256i even_pair, __m256i odd_pair) {
  const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(keys, 8), 8);
  const __m256i odd = _mm256_srai_epi16(keys, 8);
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even, even_pair));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(odd, odd_pair));
}

void score_vector_i8(const KeyTile& tile, int vector, const int16_t* q, int head_dim, __m256& low,
                     __m256& high) {
  __m256i low_sum = _mm256_setzero_si256();
  __m256i high_sum = low_sum;
  for (int d = 0; d < head_dim; d += 4) {
    const auto* keys = reinterpret_cast<const __m256i*>(tile.keys[vector] + d * kKeyLanes);
    const __m256i even_pair = broadcast_pair(q + d);
    const __m256i odd_pair = broadcast_pair(q + d + 2);
    low_sum = add_products(low_sum, _mm256_loadu_si256(keys), even_pair, odd_pair);
    high_sum = add_products(high_sum, _mm256_loadu_si256(keys + 1), even_pair, odd_pair);
  }
  const float* scales = tile.key_scales[vector];
  low = _mm256_mul_ps(_mm256_cvtepi32_ps(low_sum), _mm256_loadu_ps(scales));
  high = _mm256_mul_ps(_mm256_cvtepi32_ps(high_sum), _mm256_loadu_ps(scales + 8));
}

// The keys of 16 tokens: of the element `d`, and of the next.
template <KvFormat kFormat>
[[gnu::always_inline]] inline void load_keys(const char* keys, int d, __m256 (&first)[2],
                                             __m256 (&second)[2]) {
  if constexpr (kFormat == KvFormat::kBf16) {
    const auto* pairs = reinterpret_cast<const __m256i*>(keys + d * kKeyLanes * 2);
    for (int i = 0; i < 2; ++i) {
      const __m256i loaded = _mm256_loadu_si256(pairs + i);
      first[i] = first_of_pairs(loaded);
      second[i] = second_of_pairs(loaded);
    }
  } else if constexpr (is_float8(kFormat)) {
    const auto* bytes = reinterpret_cast<const __m128i*>(keys + d * kKeyLanes);
    widen_f8<kFormat>(_mm_loadu_si128(bytes), first[0], first[1]);
    widen_f8<kFormat>(_mm_loadu_si128(bytes + 1), second[0], second[1]);
  } else {
    const auto* values = reinterpret_cast<const float*>(keys) + d * kKeyLanes;
    for (int i = 0; i < 2; ++i) {
      first[i] = _mm256_loadu_ps(values + i * 8);
      second[i] = _mm256_loadu_ps(values + kKeyLanes + i * 8);
    }
  }
}

// The scores of a tile's tokens, but for the query's scale. All are summed at once: multiply-adds
// have a latency of 4 cycles, and two begin in each.
template <KvFormat kFormat>
void score_tile(const KeyTile& tile, const Query& query, int head_dim,
                __m256 (&scores)[kScoreRegisters]) {
  if constexpr (kFormat == KvFormat::kI8) {
    for (int i = 0; i < kTileVectors; ++i) {
      score_vector_i8(tile, i, query.integers, head_dim, scores[2 * i], scores[2 * i + 1]);
    }
    return;
  }
  __m256 sums[kScoreRegisters];
#pragma GCC unroll 8
  for (int i = 0; i < kScoreRegisters; ++i) sums[i] = _mm256_setzero_ps();
  for (int d = 0; d < head_dim; d += 2) {
    const __m256 q0 = _mm256_broadcast_ss(query.values + d);
    const __m256 q1 = _mm256_broadcast_ss(query.values + d + 1);
#pragma GCC unroll 4
    for (int vector = 0; vector < kTileVectors; ++vector) {
      __m256 first[2], second[2];
      load_keys<kFormat>(tile.keys[vector], d, first, second);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        __m256& sum = sums[2 * vector + i];
        sum = _mm256_fmadd_ps(q1, second[i], _mm256_fmadd_ps(q0, first[i], sum));
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kScoreRegisters; ++i) scores[i] = sums[i];
}

// What the probabilities of the tile's tokens are multiplied with where their values are.
template <KvFormat kFormat>
void scale_weights(const KeyTile& tile, float* p) {
  if constexpr (kFormat != KvFormat::kF8E4M3 && kFormat != KvFormat::kI8) return;
  for (int i = 0; i < kScoreRegisters; ++i) {
    const __m256 factor = kFormat == KvFormat::kF8E4M3
                              ? _mm256_set1_ps(kE4M3Factor)
                              : _mm256_loadu_ps(tile.value_scales[i / 2] + i % 2 * 8);
    _mm256_storeu_ps(p + i * 8, _mm256_mul_ps(_mm256_loadu_ps(p + i * 8), factor));
  }
}

// Eight values of a head, or its last ones: masked stores take many times as long as whole ones.
__m256 load_eight(const float* from, int count) {
  return count >= 8 ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, lanes_between(0, count));
}
void store_eight(float* to, int count, __m256 values) {
  if (count >= 8) return _mm256_storeu_ps(to, values);
  _mm256_maskstore_ps(to, lanes_between(0, count), values);
}

// Elements [d, d + 8 * kVectors) of a token's value. Several vectors are whole ones; one may be the
// head's last, whose lanes past the head are not read where an element has more than a byte (heads
// of these have whole registers).
template <KvFormat kFormat, int kVectors>
[[gnu::always_inline]] inline void load_values(const KeyTile& tile, int token, int head_dim, int d,
                                               __m256 (&loaded)[kVectors]) {
  const int count = kVectors > 1 ? 8 : head_dim - d;
  const int in_vector = token % kKeyLanes;
  const char* values = tile.values[token / kKeyLanes];
  if constexpr (is_float8(kFormat) && kVectors % 2 == 0) {
    const auto* bytes = reinterpret_cast<const __m128i*>(values + in_vector * head_dim + d);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; i += 2) {
      widen_f8<kFormat>(_mm_loadu_si128(bytes + i / 2), loaded[i], loaded[i + 1]);
    }
    return;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    if constexpr (kFormat == KvFormat::kBf16) {
      const auto* pairs =
          reinterpret_cast<const float*>(values) + in_vector / 2 * head_dim + d + i * 8;
      const __m256i both = _mm256_castps_si256(load_eight(pairs, count));
      loaded[i] = in_vector % 2 == 0 ? first_of_pairs(both) : second_of_pairs(both);
    } else if constexpr (kFormat == KvFormat::kF32) {
      const auto* row = reinterpret_cast<const float*>(values) + in_vector * head_dim + d + i * 8;
      loaded[i] = load_eight(row, count);
    } else {
      const __m128i bytes = _mm_loadl_epi64(
          reinterpret_cast<const __m128i*>(values + in_vector * head_dim + d + i * 8));
      if constexpr (kFormat == KvFormat::kI8) {
        loaded[i] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
      } else {
        __m256 unused;
        widen_f8<kFormat>(bytes, loaded[i], unused);
      }
    }
  }
}

// sums += p[token] * the token's values, then the next token's, which are in the same words.
template <int kVectors>
[[gnu::always_inline]] inline void add_pair_of_values(const KeyTile& tile, const float* p,
                                                      int token, int head_dim, int d,
                                                      __m256 (&sums)[kVectors]) {
  const auto* pairs = reinterpret_cast<const float*>(tile.values[token / kKeyLanes]) +
                      token % kKeyLanes / 2 * head_dim + d;
  const __m256 first = _mm256_broadcast_ss(p + token);
  const __m256 second = _mm256_broadcast_ss(p + token + 1);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const __m256i both = _mm256_castps_si256(_mm256_loadu_ps(pairs + i * 8));
    sums[i] = _mm256_fmadd_ps(first, first_of_pairs(both), sums[i]);
    sums[i] = _mm256_fmadd_ps(second, second_of_pairs(both), sums[i]);
  }
}

// out[d] += sum over tokens [begin, end) of the tile of p[token] * value[token][d], in order of
// tokens, for kVectors x 8 elements from `d` on.
template <KvFormat kFormat, int kVectors>
void add_values(const KeyTile& tile, const float* p, int begin, int end, int head_dim, int d,
                float* out) {
  const int count = kVectors > 1 ? 8 : head_dim - d;
  __m256 sums[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) sums[i] = load_eight(out + d + i * 8, count);
  for (int token = begin; token < end; ++token) {
    if (kFormat == KvFormat::kBf16 && kVectors > 1 && token % 2 == 0 && token + 1 < end) {
      add_pair_of_values(tile, p, token, head_dim, d, sums);
      ++token;
      continue;
    }
    const __m256 weight = _mm256_broadcast_ss(p + token);
    __m256 values[kVectors];
    load_values<kFormat, kVectors>(tile, token, head_dim, d, values);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) sums[i] = _mm256_fmadd_ps(weight, values[i], sums[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) store_eight(out + d + i * 8, count, sums[i]);
}

template <KvFormat kFormat>
void add_all_values(const KeyTile& tile, const float* p, int begin, int end, int head_dim,
                    float* out) {
  int d = 0;
  for (; d + 64 <= head_dim; d += 64) {
    add_values<kFormat, 8>(tile, p, begin, end, head_dim, d, out);
  }
  for (; d < head_dim; d += 8) {
    add_values<kFormat, 1>(tile, p, begin, end, head_dim, d, out);
  }
}

// What the online softmax keeps of a row.
struct RowState {
  float maximum;
  float denominator;
};

// Scales the row's sums down where this tile raised its maximum.
void raise_maximum(float maximum, int head_dim, RowState& state, float* out) {
  if (maximum == state.maximum) return;
  const __m256 correction = exp_ps(_mm256_set1_ps(state.maximum - maximum));
  state.denominator *= _mm256_cvtss_f32(correction);
  for (int d = 0; d < head_dim; d += 8) {
    const int count = head_dim - d;
    store_eight(out + d, count, _mm256_mul_ps(load_eight(out + d, count), correction));
  }
  state.maximum = maximum;
}

template <KvFormat kFormat>
void attend_tile(const AttentionTask& task, const KeyTile& tile, int64_t first_key,
                 const Query& query, int64_t position, RowState& state, float* out) {
  const int64_t first_seen = task.window > 0 ? position - task.window + 1 : 0;
  const int begin = static_cast<int>(first_seen > first_key ? first_seen - first_key : 0);
  const int64_t seen = position + 1 - first_key;
  const int end = static_cast<int>(seen < kAttentionTile ? seen : kAttentionTile);
  if (begin >= end) return;

  __m256 scores[kScoreRegisters];
  __m256 largest = _mm256_set1_ps(state.maximum);
  score_tile<kFormat>(tile, query, task.head_dim, scores);
  for (int i = 0; i < kScoreRegisters; ++i) {
    const __m256 visible = _mm256_castsi256_ps(lanes_between(begin - i * 8, end - i * 8));
    const __m256 scaled = _mm256_mul_ps(scores[i], _mm256_set1_ps(query.scale));
    scores[i] = _mm256_blendv_ps(_mm256_set1_ps(kMinusInfinity), scaled, visible);
    largest = _mm256_max_ps(largest, scores[i]);
  }
  float lanes[8];
  _mm256_storeu_ps(lanes, largest);
  float maximum = lanes[0];
  for (float lane : lanes) maximum = lane > maximum ? lane : maximum;

  float p[kAttentionTile];
  __m256 sum = _mm256_setzero_ps();
  for (int i = 0; i < kScoreRegisters; ++i) {
    const __m256 probability = exp_ps(_mm256_sub_ps(scores[i], _mm256_set1_ps(maximum)));
    _mm256_storeu_ps(p + i * 8, probability);
    sum = _mm256_add_ps(sum, probability);
  }
  raise_maximum(maximum, task.head_dim, state, out);
  state.denominator += sum_of(sum);
  scale_weights<kFormat>(tile, p);
  add_all_values<kFormat>(tile, p, begin, end, task.head_dim, out);
}

template <KvFormat kFormat>
Query query_of(const AttentionTask& task, int token, int head) {
  const int row = token * task.heads + head;
  const float* values = task.q + token * task.q_stride + int64_t{head} * task.head_dim;
  if constexpr (kFormat == KvFormat::kI8) {
    return {values, task.q_integers + int64_t{row} * task.head_dim,
            task.scale * task.q_scales[row]};
  }
  return {values, nullptr, task.scale * factor_of(kFormat)};
}

template <KvFormat kFormat>
void attend(const AttentionTask& task) {
  auto* states = static_cast<RowState*>(task.scratch);
  const auto out_of = [&task](int token, int head) {
    return task.out + token * task.out_stride + int64_t{head} * task.head_dim;
  };
  for (int token = 0; token < task.tokens; ++token) {
    for (int head = 0; head < task.heads; ++head) {
      states[token * task.heads + head] = {kMinusInfinity, 0.0f};
      float* out = out_of(token, head);
      for (int d = 0; d < task.head_dim; ++d) out[d] = 0.0f;
    }
  }
  const int64_t newest = task.first_position + task.tokens - 1;
  const int64_t last_position = newest < task.end - 1 ? newest : task.end - 1;
  const int64_t first_seen = task.window > 0 ? task.first_position - task.window + 1 : 0;
  const int64_t first_key = first_seen > task.begin ? first_seen : task.begin;
  for (int64_t key = first_key / kAttentionTile * kAttentionTile; key <= last_position;
       key += kAttentionTile) {
    const KeyTile tile = find_tile(task, key, last_position, kFormat);
    for (int token = 0; token < task.tokens; ++token) {
      for (int head = 0; head < task.heads; ++head) {
        attend_tile<kFormat>(task, tile, key, query_of<kFormat>(task, token, head),
                             task.first_position + token, states[token * task.heads + head],
                             out_of(token, head));
      }
    }
  }
  for (int row = 0; row < task.tokens * task.heads; ++row) {
    task.maxima[row] = states[row].maximum;
    task.denominators[row] = states[row].denominator;
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

}  // namespace quire::ops::avx2
