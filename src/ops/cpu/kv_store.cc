#include "ops/cpu/kv_store.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>

#include "ops/cpu/kv_layout.h"

namespace quire::ops {
namespace {

template <typename To, typename From>
void scatter_key(const From* key, int head_dim, int step, To* out) {
  for (int d = 0; d < head_dim; d += step) {
    for (int i = 0; i < step; ++i) out[d * kKeyLanes + i] = To(key[d + i]);
  }
}

template <typename To, typename From>
void scatter_value(const From* value, int head_dim, int step, To* out) {
  for (int d = 0; d < head_dim; ++d) out[d * step] = To(value[d]);
}

// Where one token's element 0 lies.
template <typename T>
struct TokenPlace {
  T* key;
  T* value;
};

template <typename T>
TokenPlace<T> place_of(const KvCacheView& cache, int64_t slot, int64_t head) {
  const int64_t block = slot / cache.block_size;
  const int64_t token = slot % cache.block_size;
  const int64_t offset =
      block * static_cast<int64_t>(cache.block_bytes()) + kv_head_offset(cache, head);
  return {
      reinterpret_cast<T*>(static_cast<std::byte*>(cache.keys) + offset) + key_offset(cache, token),
      reinterpret_cast<T*>(static_cast<std::byte*>(cache.values) + offset) +
          value_offset(cache, token)};
}

template <typename T>
void store_wide(const KvCacheView& cache, int64_t slot, int64_t head, const float* key,
                const float* value) {
  constexpr int kStep = sizeof(T) == 2 ? 2 : 1;
  const TokenPlace<T> place = place_of<T>(cache, slot, head);
  scatter_key(key, cache.head_dim, kStep, place.key);
  scatter_value(value, cache.head_dim, kStep, place.value);
}

// Divided by the head's scale, where there is one, and rounded.
void round_to_float8(const Kernels& kernels, const KvCacheView& cache, const float* values,
                     const float* scales, int64_t head, uint8_t* out) {
  float divided[kMaxNarrowHeadDim];
  if (scales != nullptr) {
    for (int d = 0; d < cache.head_dim; ++d) divided[d] = values[d] / scales[head];
    values = divided;
  }
  const auto round = cache.dtype == DType::kFloat8E5M2 ? kernels.round_e5m2 : kernels.round_f8;
  round(values, cache.head_dim, out);
}

void store_float8(const Kernels& kernels, const KvCacheView& cache, int64_t slot, int64_t head,
                  const float* key, const float* value) {
  const auto place = place_of<uint8_t>(cache, slot, head);
  uint8_t bytes[kMaxNarrowHeadDim];
  round_to_float8(kernels, cache, key, cache.key_scales, head, bytes);
  scatter_key(bytes, cache.head_dim, 1, place.key);
  round_to_float8(kernels, cache, value, cache.value_scales, head, place.value);
}

// Rounds `count` values to integers and returns their scale.
float round_to_int8(const Kernels& kernels, const float* values, int count, int8_t* out) {
  constexpr float kLargestInt8 = 127.0f;
  const float largest = largest_magnitude(values, count);
  if (!(largest >= kLeastToRound && largest <= std::numeric_limits<float>::max())) {
    std::fill_n(out, count, int8_t{0});
    return largest < kLeastToRound ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  kernels.round_group(
      values, count,
      {.inverse = kLargestInt8 / largest, .shift = 0, .low = -kLargestInt8, .high = kLargestInt8},
      out);
  return largest / kLargestInt8;
}

void store_int8(const Kernels& kernels, const KvCacheView& cache, int64_t slot, int64_t head,
                const float* key, const float* value) {
  const auto place = place_of<int8_t>(cache, slot, head);
  int8_t integers[kMaxNarrowHeadDim];
  const float key_scale = round_to_int8(kernels, key, cache.head_dim, integers);
  scatter_key(integers, cache.head_dim, static_cast<int>(kv_key_step(cache.dtype)), place.key);
  const float value_scale = round_to_int8(kernels, value, cache.head_dim, place.value);

  const int64_t token = slot % cache.block_size;
  const int64_t to_scale = scale_offset(cache) + token * static_cast<int64_t>(sizeof(float));
  std::memcpy(place.key - key_offset(cache, token) + to_scale, &key_scale, sizeof(float));
  std::memcpy(place.value - value_offset(cache, token) + to_scale, &value_scale, sizeof(float));
}

}  // namespace

float largest_magnitude(const float* values, int count) {
  int32_t largest = 0;
  for (int i = 0; i < count; ++i) {
    const auto magnitude = static_cast<int32_t>(std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
    largest = std::max(largest, magnitude);
  }
  return std::bit_cast<float>(largest);
}

void store_key_value(const Kernels& kernels, const KvCacheView& cache, int64_t slot, int64_t head,
                     const float* key, const float* value) {
  switch (cache.dtype) {
    case DType::kBFloat16:
      return store_wide<BFloat16>(cache, slot, head, key, value);
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return store_float8(kernels, cache, slot, head, key, value);
    case DType::kInt8:
      return store_int8(kernels, cache, slot, head, key, value);
    default:
      return store_wide<float>(cache, slot, head, key, value);
  }
}

}  // namespace quire::ops
