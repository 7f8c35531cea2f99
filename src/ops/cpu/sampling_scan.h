#pragma once
// Passes over a whole row of logits, written so that compilers vectorise them.
//
// A row is looked at in blocks of kScanBlock: once the maximum of each is known, the few blocks
// that hold anything near the top are all that later passes read. NaN counts as -infinity
// everywhere. Thread safety: pure functions of their arguments.
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/sampling_noise.h"

namespace quire::ops {

// Small enough that a block with something in it costs little, large enough that maxima are few:
// 2,374 for a vocabulary of 151,936.
inline constexpr size_t kScanBlock = 64;

struct Candidate {
  float logit;
  int32_t id;
  float weight;  // proportional to the probability
};

// More likely first, lower ids first where equal.
inline bool is_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The lowest argument of fast_exp: e^-87 is close to the least normal float, and as a weight
// nothing.
inline constexpr float kLowestExponent = -87.0f;

// NaN becomes the lowest too.
inline float clamp_exponent(float x) {
  return x > kLowestExponent ? x : kLowestExponent;
}

// e^x for x from kLowestExponent to 0, with a relative error below 3e-7.
inline float fast_exp(float x) {
  // x = n log 2 + r with an integer n and |r| <= log(2) / 2; adding 1.5 * 2^23 rounds to an
  // integer.
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;  // Taylor's series: the next term is below 6e-9
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) - 0x4b400000u + 127u) << 23;
  return p * std::bit_cast<float>(exponent);
}

// The maximum of each block of the row.
void block_maxima(std::span<const float> row, std::vector<float>& maxima);

// The lowest id whose logit is `max`, the greatest of `maxima` and above -infinity.
int32_t first_of_maximum(std::span<const float> row, std::span<const float> maxima, float max);

// Sum of e^((logit - max) * scale), where no exponent is positive.
double sum_exp(std::span<const float> row, float max, float scale);

// How many logits are above `value`, and how many ids below `id` have a logit equal to it.
int64_t count_before(std::span<const float> row, float value, int32_t id);

// All tokens whose logit is at least `threshold`, in order of id; weights are not set.
void collect(std::span<const float> row, std::span<const float> maxima, float threshold,
             std::vector<Candidate>& candidates);

// The tokens with the `count` >= 1 highest logits of at least `threshold`, and those tied with the
// last.
void collect_top(std::span<const float> row, std::span<const float> maxima, float threshold,
                 size_t count, std::vector<Candidate>& candidates);

// Whether any of `count` ids from `first_id` has noise_bits of at least `threshold`.
bool any_noise_at_least(NoiseKey key, uint32_t first_id, size_t count, uint32_t threshold);

}  // namespace quire::ops
