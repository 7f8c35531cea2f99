// attention_avx512.cc with registers of half the width.
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

// The scores of 16 tokens.
template <bool kBf16>
void score_vector(const char* keys, const float* q, int head_dim, __m256& low, __m256& high) {
  low = _mm256_setzero_ps();
  high = _mm256_setzero_ps();
  for (int d = 0; d < head_dim; d += 2) {
    const __m256 q0 = _mm256_broadcast_ss(q + d);
    const __m256 q1 = _mm256_broadcast_ss(q + d + 1);
    if constexpr (kBf16) {
      const auto* pairs = reinterpret_cast<const __m256i*>(keys + d * kKeyLanes * 2);
      const __m256i low_pairs = _mm256_loadu_si256(pairs);
      const __m256i high_pairs = _mm256_loadu_si256(pairs + 1);
      low = _mm256_fmadd_ps(q0, first_of_pairs(low_pairs), low);
      high = _mm256_fmadd_ps(q0, first_of_pairs(high_pairs), high);
      low = _mm256_fmadd_ps(q1, second_of_pairs(low_pairs), low);
      high = _mm256_fmadd_ps(q1, second_of_pairs(high_pairs), high);
    } else {
      const auto* values = reinterpret_cast<const float*>(keys) + d * kKeyLanes;
      low = _mm256_fmadd_ps(q0, _mm256_loadu_ps(values), low);
      high = _mm256_fmadd_ps(q0, _mm256_loadu_ps(values + 8), high);
      low = _mm256_fmadd_ps(q1, _mm256_loadu_ps(values + kKeyLanes), low);
      high = _mm256_fmadd_ps(q1, _mm256_loadu_ps(values + kKeyLanes + 8), high);
    }
  }
}

// out[d] += sum over tokens [begin, end) of the tile of p[token] * value[token][d], in order of
// tokens, for kVectors x 8 elements from `d` on.
template <bool kBf16, int kVectors>
void add_values(const KeyTile& tile, const float* p, int begin, int end, int head_dim, int d,
                __m256i last_lanes, float* out) {
  const __m256i all = _mm256_set1_epi32(-1);
  const auto lanes = [&](int i) { return i + 1 == kVectors ? last_lanes : all; };
  __m256 sums[kVectors];
  for (int i = 0; i < kVectors; ++i) sums[i] = _mm256_maskload_ps(out + d + i * 8, lanes(i));
  for (int token = begin; token < end; ++token) {
    const int in_vector = token % kKeyLanes;
    const __m256 weight = _mm256_broadcast_ss(p + token);
    const char* values = tile.values[token / kKeyLanes];
    for (int i = 0; i < kVectors; ++i) {
      if constexpr (kBf16) {
        const auto* pairs =
            reinterpret_cast<const int*>(values) + in_vector / 2 * head_dim + d + i * 8;
        const __m256i loaded = _mm256_maskload_epi32(pairs, lanes(i));
        sums[i] = _mm256_fmadd_ps(
            weight, in_vector % 2 == 0 ? first_of_pairs(loaded) : second_of_pairs(loaded), sums[i]);
      } else {
        const auto* row = reinterpret_cast<const float*>(values) + in_vector * head_dim + d + i * 8;
        sums[i] = _mm256_fmadd_ps(weight, _mm256_maskload_ps(row, lanes(i)), sums[i]);
      }
    }
  }
  for (int i = 0; i < kVectors; ++i) _mm256_maskstore_ps(out + d + i * 8, lanes(i), sums[i]);
}

template <bool kBf16>
void add_all_values(const KeyTile& tile, const float* p, int begin, int end, int head_dim,
                    float* out) {
  int d = 0;
  for (; d + 64 <= head_dim; d += 64) {
    add_values<kBf16, 8>(tile, p, begin, end, head_dim, d, _mm256_set1_epi32(-1), out);
  }
  for (; d < head_dim; d += 8) {
    add_values<kBf16, 1>(tile, p, begin, end, head_dim, d, lanes_between(0, head_dim - d), out);
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
    const __m256i lanes = lanes_between(0, head_dim - d);
    _mm256_maskstore_ps(out + d, lanes,
                        _mm256_mul_ps(_mm256_maskload_ps(out + d, lanes), correction));
  }
  state.maximum = maximum;
}

template <bool kBf16>
void attend_tile(const AttentionTask& task, const KeyTile& tile, int64_t first_key, const float* q,
                 int64_t position, RowState& state, float* out) {
  const int64_t first_seen = task.window > 0 ? position - task.window + 1 : 0;
  const int begin = static_cast<int>(first_seen > first_key ? first_seen - first_key : 0);
  const int64_t seen = position + 1 - first_key;
  const int end = static_cast<int>(seen < kAttentionTile ? seen : kAttentionTile);
  if (begin >= end) return;

  __m256 scores[kScoreRegisters];
  __m256 largest = _mm256_set1_ps(state.maximum);
  for (int i = 0; i < kScoreRegisters; i += 2) {
    score_vector<kBf16>(tile.keys[i / 2], q, task.head_dim, scores[i], scores[i + 1]);
    for (int j = i; j < i + 2; ++j) {
      const __m256 visible = _mm256_castsi256_ps(lanes_between(begin - j * 8, end - j * 8));
      const __m256 scaled = _mm256_mul_ps(scores[j], _mm256_set1_ps(task.scale));
      scores[j] = _mm256_blendv_ps(_mm256_set1_ps(kMinusInfinity), scaled, visible);
      largest = _mm256_max_ps(largest, scores[j]);
    }
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

}  // namespace quire::ops::avx2
