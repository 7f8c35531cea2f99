// Online softmax over tiles of kAttentionTile tokens (see attention_cpu.cc), all rows of a task for
// each tile, so that a tile of keys and values is read from memory once. Every row does the same
// operations in the same order however many rows there are.
#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/exp_avx512.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::avx512 {
namespace {

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

// Where keys and values of the 16 tokens from `position` on (a multiple of 16) are.
const char* lanes_at(const AttentionTask& task, const void* base, int64_t position,
                     int value_bytes) {
  const int64_t block = task.block_table[position / task.block_size];
  return static_cast<const char*>(base) + block * task.block_bytes +
         position % task.block_size * task.head_dim * value_bytes;
}

struct KeyTile {
  const char* keys[kTileVectors];
  const char* values[kTileVectors];
};

// Vectors past the last token that any row sees are not looked up: their blocks may not exist.
KeyTile find_tile(const AttentionTask& task, int64_t tile, int64_t last_position, int value_bytes) {
  KeyTile found = {};
  for (int i = 0; i < kTileVectors; ++i) {
    const int64_t position = tile + i * kKeyLanes;
    const int64_t known = position <= last_position ? position : tile;
    found.keys[i] = lanes_at(task, task.keys, known, value_bytes);
    found.values[i] = lanes_at(task, task.values, known, value_bytes);
  }
  return found;
}

// Scores of the tile's tokens for kRows queries; keys are loaded and widened once for all of them.
template <bool kBf16, int kRows>
void score_tile(const KeyTile& tile, const float* const* q, int head_dim,
                __m512 (&scores)[kRows][kTileVectors]) {
  __m512 sums[kRows][kTileVectors];  // local, so that they stay in registers
  for (int row = 0; row < kRows; ++row) {
    for (__m512& sum : sums[row]) sum = _mm512_setzero_ps();
  }
  for (int d = 0; d < head_dim; d += 2) {
    for (int i = 0; i < kTileVectors; ++i) {
      __m512 key0;
      __m512 key1;
      if constexpr (kBf16) {
        const __m512i pairs = _mm512_loadu_si512(tile.keys[i] + d * kKeyLanes * 2);
        key0 = first_of_pairs(pairs);
        key1 = second_of_pairs(pairs);
      } else {
        const auto* keys = reinterpret_cast<const float*>(tile.keys[i]) + d * kKeyLanes;
        key0 = _mm512_loadu_ps(keys);
        key1 = _mm512_loadu_ps(keys + kKeyLanes);
      }
      for (int row = 0; row < kRows; ++row) {
        sums[row][i] = _mm512_fmadd_ps(_mm512_set1_ps(q[row][d]), key0, sums[row][i]);
        sums[row][i] = _mm512_fmadd_ps(_mm512_set1_ps(q[row][d + 1]), key1, sums[row][i]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kTileVectors; ++i) scores[row][i] = sums[row][i];
  }
}

// One query of one head, and what the online softmax keeps of it.
struct Row {
  const float* q;
  float* out;
  int64_t position;
  float maximum;
  float denominator;
};

static_assert(sizeof(Row) <= 32, "attention_scratch_bytes counts 32 bytes of state a row");

// The part of a tile that a row sees, and its probabilities.
struct Seen {
  int begin;
  int end;  // begin == end: nothing
  alignas(64) float p[kAttentionTile];
};

// Adds p * value for one token, or for the two of a pair, to the sums of kRows rows by kVectors x
// 16 elements. kMasked: of the last vector only `last_lanes` exist.
template <bool kBf16, int kRows, int kVectors, bool kMasked>
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
  void add_one(const float* values, bool second, const float* const* p, int token) {
    for (int i = 0; i < kVectors; ++i) {
      __m512 value = load(values + i * 16, i);
      if constexpr (kBf16) {
        const __m512i pairs = _mm512_castps_si512(value);
        value = second ? second_of_pairs(pairs) : first_of_pairs(pairs);
      }
      add(i, value, p, token);
    }
  }

  void add_pair(const float* values, const float* const* p, int token) {
    for (int i = 0; i < kVectors; ++i) {
      const __m512i pairs = _mm512_castps_si512(load(values + i * 16, i));
      add(i, first_of_pairs(pairs), p, token);
      add(i, second_of_pairs(pairs), p, token + 1);
    }
  }

 private:
  __mmask16 lanes(int i) const {
    return kMasked && i + 1 == kVectors ? last_lanes_ : __mmask16(0xffff);
  }
  __m512 load(const float* from, int i) const {
    return kMasked ? _mm512_maskz_loadu_ps(lanes(i), from) : _mm512_loadu_ps(from);
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
template <bool kBf16, int kRows, int kVectors, bool kMasked = false>
void add_values(const KeyTile& tile, const float* const* p, float* const* out, int begin, int end,
                int head_dim, int d, __mmask16 last_lanes = 0xffff) {
  ValueSums<kBf16, kRows, kVectors, kMasked> sums(out, d, last_lanes);
  const auto values_of = [&](int token) {
    const int steps = kBf16 ? token % kKeyLanes / 2 : token % kKeyLanes;
    return reinterpret_cast<const float*>(tile.values[token / kKeyLanes]) + steps * head_dim + d;
  };
  int token = begin;
  if constexpr (kBf16) {
    if (token % 2 != 0 && token < end) {
      sums.add_one(values_of(token), true, p, token);
      ++token;
    }
    for (; token + 2 <= end; token += 2) sums.add_pair(values_of(token), p, token);
  }
  for (; token < end; ++token) sums.add_one(values_of(token), false, p, token);
  sums.store(out, d);
}

template <bool kBf16, int kRows>
void add_all_values(const KeyTile& tile, const float* const* p, float* const* out, int begin,
                    int end, int head_dim) {
  if (begin >= end) return;
  int d = 0;
  for (; d + 128 <= head_dim; d += 128) {
    add_values<kBf16, kRows, 8>(tile, p, out, begin, end, head_dim, d);
  }
  for (; d + 64 <= head_dim; d += 64) {
    add_values<kBf16, kRows, 4>(tile, p, out, begin, end, head_dim, d);
  }
  for (; d < head_dim; d += 16) {
    add_values<kBf16, kRows, 1, true>(tile, p, out, begin, end, head_dim, d,
                                      first_lanes(head_dim - d));
  }
}

// Two rows together where both see a token; one row by itself where only it does. So each row
// adds its tokens in order, as it would by itself.
template <bool kBf16>
void add_values_of_two(const KeyTile& tile, const Seen* seen, Row* rows, int head_dim) {
  const float* both_p[2] = {seen[0].p, seen[1].p};
  float* both_out[2] = {rows[0].out, rows[1].out};
  int begin = seen[0].begin > seen[1].begin ? seen[0].begin : seen[1].begin;
  int end = seen[0].end < seen[1].end ? seen[0].end : seen[1].end;
  if (begin >= end) begin = end = 0;
  for (int i = 0; i < 2; ++i) {
    const int until = begin < end ? begin : seen[i].end;
    add_all_values<kBf16, 1>(tile, both_p + i, both_out + i, seen[i].begin, until, head_dim);
  }
  add_all_values<kBf16, 2>(tile, both_p, both_out, begin, end, head_dim);
  for (int i = 0; i < 2 && begin < end; ++i) {
    add_all_values<kBf16, 1>(tile, both_p + i, both_out + i, end, seen[i].end, head_dim);
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
  const __m512 scale = _mm512_set1_ps(task.scale);
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

// kRows rows (1, 2 or 4) of a task and one tile.
template <bool kBf16, int kRows>
void attend_tile(const AttentionTask& task, const KeyTile& tile, int64_t first_key, Row* rows) {
  const float* q[kRows];
  for (int row = 0; row < kRows; ++row) q[row] = rows[row].q;
  __m512 scores[kRows][kTileVectors];
  score_tile<kBf16, kRows>(tile, q, task.head_dim, scores);
  Seen seen[kRows];
  for (int row = 0; row < kRows; ++row) {
    softmax_tile(task, first_key, scores[row], rows[row], seen[row]);
  }
  if constexpr (kRows == 1) {
    const float* p = seen[0].p;
    add_all_values<kBf16, 1>(tile, &p, &rows[0].out, seen[0].begin, seen[0].end, task.head_dim);
  } else {
    for (int row = 0; row < kRows; row += 2) {
      add_values_of_two<kBf16>(tile, seen + row, rows + row, task.head_dim);
    }
  }
}

int start_rows(const AttentionTask& task, Row* rows) {
  int count = 0;
  for (int token = 0; token < task.tokens; ++token) {
    for (int head = 0; head < task.heads; ++head) {
      const int64_t column = int64_t{head} * task.head_dim;
      float* out = task.out + token * task.out_stride + column;
      for (int d = 0; d < task.head_dim; ++d) out[d] = 0.0f;
      rows[count++] = {task.q + token * task.q_stride + column, out, task.first_position + token,
                       kMinusInfinity, 0.0f};
    }
  }
  return count;
}

template <bool kBf16>
void attend(const AttentionTask& task) {
  constexpr int kValueBytes = kBf16 ? 2 : 4;
  Row* rows = static_cast<Row*>(task.scratch);
  const int num_rows = start_rows(task, rows);
  const int64_t last_position = task.first_position + task.tokens - 1;
  const int64_t first_seen = task.window > 0 ? task.first_position - task.window + 1 : 0;
  const int64_t first_tile = first_seen > 0 ? first_seen / kAttentionTile * kAttentionTile : 0;
  for (int64_t key = first_tile; key <= last_position; key += kAttentionTile) {
    const KeyTile tile = find_tile(task, key, last_position, kValueBytes);
    int row = 0;
    for (; row + 4 <= num_rows; row += 4) attend_tile<kBf16, 4>(task, tile, key, rows + row);
    for (; row + 2 <= num_rows; row += 2) attend_tile<kBf16, 2>(task, tile, key, rows + row);
    for (; row < num_rows; ++row) attend_tile<kBf16, 1>(task, tile, key, rows + row);
  }
  for (int row = 0; row < num_rows; ++row) {
    for (int d = 0; d < task.head_dim; ++d) rows[row].out[d] /= rows[row].denominator;
  }
}

}  // namespace

void attention_f32(const AttentionTask& task) {
  attend<false>(task);
}
void attention_bf16(const AttentionTask& task) {
  attend<true>(task);
}

}  // namespace quire::ops::avx512
