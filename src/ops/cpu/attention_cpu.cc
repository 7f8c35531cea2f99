// The reference: online softmax (Milakov and Gimelshein 2018; FlashAttention) over tiles of
// kAttentionTile tokens, one query row at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/dtype.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::scalar {
namespace {

// How elements lie in a head's part of a block (ops/cpu/kv_layout.h), and what each is worth.
struct Float32Cache {
  using Element = float;
  static constexpr int kKeyStep = 1, kValueStep = 1;
  static float widen(float value) { return value; }
};
struct BFloat16Cache {
  using Element = BFloat16;
  static constexpr int kKeyStep = 2, kValueStep = 2;
  static float widen(BFloat16 value) { return static_cast<float>(value); }
};
template <typename Float8>
struct Float8Cache {
  using Element = Float8;
  static constexpr int kKeyStep = 1, kValueStep = 1;
  static float widen(Float8 value) { return static_cast<float>(value); }
};
struct Int8Cache {
  using Element = int8_t;
  static constexpr int kKeyStep = 4, kValueStep = 1;
  static float widen(int8_t value) { return value; }
};

template <typename Cache>
constexpr bool kHasScales = std::is_same_v<Cache, Int8Cache>;

// The KV head's part of the block that holds `position`, keys or values.
const char* block_at(const AttentionTask& task, const void* base, int64_t position) {
  const int64_t block = task.block_table[position / task.block_size];
  return static_cast<const char*>(base) + block * task.block_bytes;
}

float scale_at(const AttentionTask& task, const void* base, int64_t position) {
  float scale;
  std::memcpy(&scale,
              block_at(task, base, position) + int64_t{task.block_size} * task.head_dim +
                  position % task.block_size * static_cast<int64_t>(sizeof(scale)),
              sizeof(scale));
  return scale;
}

// Every number that these read would be a call of the thread sanitizer, which then takes minutes
// for the tests of attention. It watches the AVX2 kernel read the same cache.
#define QUIRE_UNWATCHED __attribute__((no_sanitize("thread")))

// Element 0 of a token's key; element d is at d / step * step * kKeyLanes + d % step.
template <typename Cache>
const typename Cache::Element* key_at(const AttentionTask& task, int64_t position) {
  const int64_t token = position % task.block_size;
  const auto* keys =
      reinterpret_cast<const typename Cache::Element*>(block_at(task, task.keys, position));
  return keys + token / kKeyLanes * kKeyLanes * task.head_dim + token % kKeyLanes * Cache::kKeyStep;
}

template <typename Cache>
QUIRE_UNWATCHED float score(const AttentionTask& task, int row, const float* q, int64_t position) {
  constexpr int64_t kStep = Cache::kKeyStep;
  const auto* key = key_at<Cache>(task, position);
  if constexpr (kHasScales<Cache>) {
    constexpr int kPlaces[] = {0, 2, 1, 3};
    const int16_t* integers = task.q_integers + int64_t{row} * task.head_dim;
    int32_t sum = 0;
    for (int64_t d = 0; d < task.head_dim; ++d) {
      sum += integers[d / 4 * 4 + kPlaces[d % 4]] * key[d / kStep * kStep * kKeyLanes + d % kStep];
    }
    return static_cast<float>(sum) * scale_at(task, task.keys, position) *
           (task.scale * task.q_scales[row]);
  } else {
    float sum = 0.0f;
    for (int64_t d = 0; d < task.head_dim; ++d) {
      sum += q[d] * Cache::widen(key[d / kStep * kStep * kKeyLanes + d % kStep]);
    }
    return sum * task.scale;
  }
}

template <typename Cache>
QUIRE_UNWATCHED void add_value(const AttentionTask& task, float probability, int64_t position,
                               float* out) {
  constexpr int64_t kStep = Cache::kValueStep;
  const int64_t token = position % task.block_size;
  const auto* values =
      reinterpret_cast<const typename Cache::Element*>(block_at(task, task.values, position)) +
      token / kStep * kStep * task.head_dim + token % kStep;
  if constexpr (kHasScales<Cache>) probability *= scale_at(task, task.values, position);
  for (int64_t d = 0; d < task.head_dim; ++d) {
    out[d] += probability * Cache::widen(values[d * kStep]);
  }
}
#undef QUIRE_UNWATCHED

template <typename Cache>
void attend(const AttentionTask& task, int row, const float* q, int64_t position, float* out) {
  const int64_t window_begin = task.window > 0 ? position - task.window + 1 : 0;
  const int64_t first = std::max(task.begin, window_begin);
  const int64_t past = std::min(task.end, position + 1);
  float maximum = -std::numeric_limits<float>::infinity();
  float denominator = 0.0f;
  std::fill_n(out, task.head_dim, 0.0f);
  for (int64_t tile = first / kAttentionTile * kAttentionTile; tile < past;
       tile += kAttentionTile) {
    const int64_t begin = std::max(tile, first);
    const int64_t end = std::min(tile + kAttentionTile, past);
    float scores[kAttentionTile];
    float tile_maximum = maximum;
    for (int64_t p = begin; p < end; ++p) {
      scores[p - tile] = score<Cache>(task, row, q, p);
      tile_maximum = std::max(tile_maximum, scores[p - tile]);
    }
    const float correction = std::exp(maximum - tile_maximum);
    maximum = tile_maximum;
    denominator *= correction;
    for (int64_t d = 0; d < task.head_dim; ++d) out[d] *= correction;
    for (int64_t p = begin; p < end; ++p) {
      const float probability = std::exp(scores[p - tile] - maximum);
      denominator += probability;
      add_value<Cache>(task, probability, p, out);
    }
  }
  task.maxima[row] = maximum;
  task.denominators[row] = denominator;
}

template <typename Cache>
void attend_all(const AttentionTask& task) {
  for (int token = 0; token < task.tokens; ++token) {
    for (int head = 0; head < task.heads; ++head) {
      const int64_t column = int64_t{head} * task.head_dim;
      attend<Cache>(task, token * task.heads + head, task.q + token * task.q_stride + column,
                    task.first_position + token, task.out + token * task.out_stride + column);
    }
  }
}

}  // namespace

void norm_rope(const HeadTask& head) {
  float* x = head.x;
  if (head.norm != nullptr) {
    rms_norm(x, nullptr, head.norm, head.eps, head.head_dim, x);
  }
  const int half = head.rotary_dim / 2;
  const float* cosines = head.cos_sin;
  const float* sines = head.cos_sin + half;
  for (int i = 0; i < half; ++i) {
    const float low = x[i];
    const float high = x[i + half];
    x[i] = low * cosines[i] - high * sines[i];
    x[i + half] = high * cosines[i] + low * sines[i];
  }
}

void attention_f32(const AttentionTask& task) {
  attend_all<Float32Cache>(task);
}
void attention_bf16(const AttentionTask& task) {
  attend_all<BFloat16Cache>(task);
}
void attention_e4m3(const AttentionTask& task) {
  attend_all<Float8Cache<Float8E4M3>>(task);
}
void attention_e5m2(const AttentionTask& task) {
  attend_all<Float8Cache<Float8E5M2>>(task);
}
void attention_i8(const AttentionTask& task) {
  attend_all<Int8Cache>(task);
}

}  // namespace quire::ops::scalar
