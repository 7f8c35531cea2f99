// Online softmax over tiles of kAttentionTile tokens (see attention_cpu.cc), all rows of a task for
// each tile, so that a tile of keys and values is read from memory once. Every row does the same
// operations in the same order however many rows there are.
#include <immintrin.h>

#include <cstdint>

#include "ops/exp_avx512.h"
#include "ops/kernels.h"

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

template <bool kBf16>
void score_tile(const KeyTile& tile, const float* q, int head_dim, __m512 (&scores)[kTileVectors]) {
  for (__m512& score : scores) score = _mm512_setzero_ps();
  for (int d = 0; d < head_dim; d += 2) {
    const __m512 q0 = _mm512_set1_ps(q[d]);
    const __m512 q1 = _mm512_set1_ps(q[d + 1]);
    for (int i = 0; i < kTileVectors; ++i) {
      if constexpr (kBf16) {
        const __m512i pairs = _mm512_loadu_si512(tile.keys[i] + d * kKeyLanes * 2);
        scores[i] = _mm512_fmadd_ps(q0, first_of_pairs(pairs), scores[i]);
        scores[i] = _mm512_fmadd_ps(q1, second_of_pairs(pairs), scores[i]);
      } else {
        const auto* keys = reinterpret_cast<const float*>(tile.keys[i]) + d * kKeyLanes;
        scores[i] = _mm512_fmadd_ps(q0, _mm512_loadu_ps(keys), scores[i]);
        scores[i] = _mm512_fmadd_ps(q1, _mm512_loadu_ps(keys + kKeyLanes), scores[i]);
      }
    }
  }
}

// out[d] += sum over tokens [begin, end) of the tile of p[token] * value[token][d], in order of
// tokens, for kVectors x 16 elements from `d` on.
template <bool kBf16, int kVectors>
void add_values(const KeyTile& tile, const float* p, int begin, int end, int head_dim, int d,
                __mmask16 last_lanes, float* out) {
  __m512 sums[kVectors];
  const auto lanes = [last_lanes](int i) {
    return i + 1 == kVectors ? last_lanes : __mmask16(0xffff);
  };
  for (int i = 0; i < kVectors; ++i) sums[i] = _mm512_maskz_loadu_ps(lanes(i), out + d + i * 16);
  for (int token = begin; token < end; ++token) {
    const int in_vector = token % kKeyLanes;
    const __m512 weight = _mm512_set1_ps(p[token]);
    const char* values = tile.values[token / kKeyLanes];
    for (int i = 0; i < kVectors; ++i) {
      if constexpr (kBf16) {
        const char* pairs = values + (in_vector / 2 * head_dim + d + i * 16) * 4;
        const __m512i loaded = _mm512_maskz_loadu_epi32(lanes(i), pairs);
        sums[i] = _mm512_fmadd_ps(
            weight, in_vector % 2 == 0 ? first_of_pairs(loaded) : second_of_pairs(loaded), sums[i]);
      } else {
        const auto* row =
            reinterpret_cast<const float*>(values) + in_vector * head_dim + d + i * 16;
        sums[i] = _mm512_fmadd_ps(weight, _mm512_maskz_loadu_ps(lanes(i), row), sums[i]);
      }
    }
  }
  for (int i = 0; i < kVectors; ++i) _mm512_mask_storeu_ps(out + d + i * 16, lanes(i), sums[i]);
}

template <bool kBf16>
void add_all_values(const KeyTile& tile, const float* p, int begin, int end, int head_dim,
                    float* out) {
  int d = 0;
  for (; d + 128 <= head_dim; d += 128) {
    add_values<kBf16, 8>(tile, p, begin, end, head_dim, d, 0xffff, out);
  }
  for (; d + 64 <= head_dim; d += 64) {
    add_values<kBf16, 4>(tile, p, begin, end, head_dim, d, 0xffff, out);
  }
  for (; d < head_dim; d += 16) {
    add_values<kBf16, 1>(tile, p, begin, end, head_dim, d, first_lanes(head_dim - d), out);
  }
}

// What the online softmax keeps of a row.
struct RowState {
  float maximum;
  float denominator;
};

template <bool kBf16>
void attend_tile(const AttentionTask& task, const KeyTile& tile, int64_t first_key, const float* q,
                 int64_t position, RowState& state, float* out) {
  const int64_t first_seen = task.window > 0 ? position - task.window + 1 : 0;
  const int begin = static_cast<int>(first_seen > first_key ? first_seen - first_key : 0);
  const int64_t seen = position + 1 - first_key;
  const int end = static_cast<int>(seen < kAttentionTile ? seen : kAttentionTile);
  if (begin >= end) return;

  __m512 scores[kTileVectors];
  score_tile<kBf16>(tile, q, task.head_dim, scores);
  const __m512 scale = _mm512_set1_ps(task.scale);
  __m512 largest = _mm512_set1_ps(state.maximum);
  for (int i = 0; i < kTileVectors; ++i) {
    const auto visible = static_cast<__mmask16>(first_lanes(end - i * kKeyLanes) &
                                                ~first_lanes(begin - i * kKeyLanes));
    scores[i] = _mm512_mask_mul_ps(_mm512_set1_ps(kMinusInfinity), visible, scores[i], scale);
    largest = _mm512_max_ps(largest, scores[i]);
  }
  float lanes[16];
  _mm512_storeu_ps(lanes, largest);
  float maximum = lanes[0];
  for (float lane : lanes) maximum = lane > maximum ? lane : maximum;

  alignas(64) float p[kAttentionTile];
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < kTileVectors; ++i) {
    const __m512 probability = exp_ps(_mm512_sub_ps(scores[i], _mm512_set1_ps(maximum)));
    _mm512_store_ps(p + i * kKeyLanes, probability);
    sum = _mm512_add_ps(sum, probability);
  }
  if (maximum != state.maximum) {
    const __m512 correction = exp_ps(_mm512_set1_ps(state.maximum - maximum));
    state.denominator *= _mm512_cvtss_f32(correction);
    for (int d = 0; d < task.head_dim; d += 16) {
      const __mmask16 part = first_lanes(task.head_dim - d);
      _mm512_mask_storeu_ps(out + d, part,
                            _mm512_mul_ps(_mm512_maskz_loadu_ps(part, out + d), correction));
    }
    state.maximum = maximum;
  }
  state.denominator += sum_of(sum);
  add_all_values<kBf16>(tile, p, begin, end, task.head_dim, out);
}

template <bool kBf16>
void attend(const AttentionTask& task) {
  constexpr int kValueBytes = kBf16 ? 2 : 4;
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
  const int64_t last_position = task.first_position + task.tokens - 1;
  const int64_t first_seen = task.window > 0 ? task.first_position - task.window + 1 : 0;
  const int64_t first_tile = first_seen > 0 ? first_seen / kAttentionTile * kAttentionTile : 0;
  for (int64_t key = first_tile; key <= last_position; key += kAttentionTile) {
    const KeyTile tile = find_tile(task, key, last_position, kValueBytes);
    for (int token = 0; token < task.tokens; ++token) {
      for (int head = 0; head < task.heads; ++head) {
        attend_tile<kBf16>(
            task, tile, key, task.q + token * task.q_stride + int64_t{head} * task.head_dim,
            task.first_position + token, states[token * task.heads + head], out_of(token, head));
      }
    }
  }
  for (int token = 0; token < task.tokens; ++token) {
    for (int head = 0; head < task.heads; ++head) {
      const float denominator = states[token * task.heads + head].denominator;
      float* out = out_of(token, head);
      for (int d = 0; d < task.head_dim; ++d) out[d] /= denominator;
    }
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
