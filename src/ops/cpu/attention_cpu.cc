// The reference: online softmax (Milakov and Gimelshein 2018; FlashAttention) over tiles of
// kAttentionTile tokens, one query row at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/cpu/kernels.h"

namespace quire::ops::scalar {
namespace {

float to_float(float value) {
  return value;
}
float to_float(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

template <typename T>
constexpr int64_t kValues = sizeof(T) == 2 ? 2 : 1;

// The KV head's part of the block that holds `position`, keys or values.
template <typename T>
const T* block_at(const AttentionTask& task, const void* base, int64_t position) {
  const int64_t block = task.block_table[position / task.block_size];
  return reinterpret_cast<const T*>(static_cast<const char*>(base) + block * task.block_bytes);
}

// Every number that these two read would be a call of the thread sanitizer, which then takes
// minutes for the tests of attention. It watches the AVX2 kernel read the same cache.
#define QUIRE_UNWATCHED __attribute__((no_sanitize("thread")))

template <typename T>
QUIRE_UNWATCHED float score(const AttentionTask& task, const float* q, int64_t position) {
  const int64_t token = position % task.block_size;
  const T* keys = block_at<T>(task, task.keys, position) +
                  token / kKeyLanes * kKeyLanes * task.head_dim + token % kKeyLanes * kValues<T>;
  float sum = 0.0f;
  for (int64_t d = 0; d < task.head_dim; ++d) {
    sum += q[d] * to_float(keys[d / kValues<T> * kKeyLanes * kValues<T> + d % kValues<T>]);
  }
  return sum * task.scale;
}

template <typename T>
QUIRE_UNWATCHED void add_value(const AttentionTask& task, float probability, int64_t position,
                               float* out) {
  const int64_t token = position % task.block_size;
  const T* values = block_at<T>(task, task.values, position) +
                    token / kValues<T> * task.head_dim * kValues<T> + token % kValues<T>;
  for (int64_t d = 0; d < task.head_dim; ++d)
    out[d] += probability * to_float(values[d * kValues<T>]);
}
#undef QUIRE_UNWATCHED

template <typename T>
void attend(const AttentionTask& task, const float* q, int64_t position, float* out) {
  const int64_t first = task.window > 0 ? std::max<int64_t>(0, position - task.window + 1) : 0;
  float maximum = -std::numeric_limits<float>::infinity();
  float denominator = 0.0f;
  std::fill_n(out, task.head_dim, 0.0f);
  for (int64_t tile = first / kAttentionTile * kAttentionTile; tile <= position;
       tile += kAttentionTile) {
    const int64_t begin = std::max(tile, first);
    const int64_t end = std::min(tile + kAttentionTile, position + 1);
    float scores[kAttentionTile];
    float tile_maximum = maximum;
    for (int64_t p = begin; p < end; ++p) {
      scores[p - tile] = score<T>(task, q, p);
      tile_maximum = std::max(tile_maximum, scores[p - tile]);
    }
    const float correction = std::exp(maximum - tile_maximum);
    maximum = tile_maximum;
    denominator *= correction;
    for (int64_t d = 0; d < task.head_dim; ++d) out[d] *= correction;
    for (int64_t p = begin; p < end; ++p) {
      const float probability = std::exp(scores[p - tile] - maximum);
      denominator += probability;
      add_value<T>(task, probability, p, out);
    }
  }
  for (int64_t d = 0; d < task.head_dim; ++d) out[d] /= denominator;
}

template <typename T>
void attend_all(const AttentionTask& task) {
  for (int token = 0; token < task.tokens; ++token) {
    for (int head = 0; head < task.heads; ++head) {
      attend<T>(task, task.q + token * task.q_stride + int64_t{head} * task.head_dim,
                task.first_position + token,
                task.out + token * task.out_stride + int64_t{head} * task.head_dim);
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
  attend_all<float>(task);
}
void attention_bf16(const AttentionTask& task) {
  attend_all<uint16_t>(task);
}

}  // namespace quire::ops::scalar
