#include "layers/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace quire {
namespace {

// base^(2i / dim).
float wavelength_over_two_pi(double base, int64_t i, int64_t dim) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
  return static_cast<float>(std::pow(base, static_cast<double>(exponent)));
}

std::vector<float> plain_frequencies(double base, int64_t dim) {
  std::vector<float> inv_freq;
  for (int64_t i = 0; i < dim / 2; ++i) {
    inv_freq.push_back(1.0f / wavelength_over_two_pi(base, i, dim));
  }
  return inv_freq;
}

double dynamic_ntk_base(const RopeConfig& rope, int64_t dim, int64_t max_position_embeddings,
                        int64_t max_model_len) {
  const auto trained = static_cast<double>(max_position_embeddings);
  const double length = std::max(trained, static_cast<double>(max_model_len));
  const double d = static_cast<double>(dim);
  return rope.theta * std::pow(rope.factor * length / trained - (rope.factor - 1.0), d / (d - 2.0));
}

double yarn_mscale(double scale, double mscale) {
  return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

double yarn_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  // transformers takes a zero mscale for none given.
  if (rope.mscale.value_or(0.0) != 0.0 && rope.mscale_all_dim.value_or(0.0) != 0.0) {
    return yarn_mscale(rope.factor, *rope.mscale) / yarn_mscale(rope.factor, *rope.mscale_all_dim);
  }
  return yarn_mscale(rope.factor, 1.0);
}

// The (fractional) index of the frequency that turns `rotations` times over the original length.
double yarn_correction_dim(const RopeConfig& rope, int64_t dim, double rotations) {
  const auto length = static_cast<double>(rope.original_max_position_embeddings);
  return static_cast<double>(dim) * std::log(length / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rope.theta));
}

// Fast frequencies stay, slow ones are divided by the factor, those between are blended.
std::vector<float> yarn_frequencies(const RopeConfig& rope, int64_t dim) {
  double low = yarn_correction_dim(rope, dim, rope.beta_fast);
  double high = yarn_correction_dim(rope, dim, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  std::vector<float> inv_freq;
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float wavelength = wavelength_over_two_pi(rope.theta, i, dim);
    const float interpolated = 1.0f / (static_cast<float>(rope.factor) * wavelength);
    const float extrapolated = 1.0f / wavelength;
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float keep = 1.0f - ramp;
    inv_freq.push_back(interpolated * (1.0f - keep) + extrapolated * keep);
  }
  return inv_freq;
}

// Long wavelengths are divided by the factor, short ones stay, those between are blended.
std::vector<float> llama3_frequencies(const RopeConfig& rope, int64_t dim) {
  const auto length = static_cast<float>(rope.original_max_position_embeddings);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto high = static_cast<float>(rope.high_freq_factor);
  const auto factor = static_cast<float>(rope.factor);
  std::vector<float> inv_freq = plain_frequencies(rope.theta, dim);
  for (float& frequency : inv_freq) {
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / frequency;
    if (wavelength < length / high) continue;
    if (wavelength > length / low) {
      frequency /= factor;
      continue;
    }
    const float smooth = (length / wavelength - low) / (high - low);
    frequency = (1.0f - smooth) * frequency / factor + smooth * frequency;
  }
  return inv_freq;
}

std::vector<float> longrope_frequencies(const RopeConfig& rope, int64_t dim,
                                        int64_t max_model_len) {
  const bool is_long = max_model_len > rope.original_max_position_embeddings;
  const std::vector<double>& factors = is_long ? rope.long_factor : rope.short_factor;
  std::vector<float> inv_freq;
  for (int64_t i = 0; i < dim / 2; ++i) {
    const auto factor = static_cast<float>(factors.at(static_cast<size_t>(i)));
    inv_freq.push_back(1.0f / (factor * wavelength_over_two_pi(rope.theta, i, dim)));
  }
  return inv_freq;
}

double longrope_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.factor <= 1.0) return 1.0;
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  return std::sqrt(1.0 + std::log(rope.factor) / std::log(original));
}

}  // namespace

RotaryFrequencies rotary_frequencies(const RopeConfig& rope, int64_t head_dim,
                                     int64_t max_position_embeddings, int64_t max_model_len) {
  const int64_t dim = rope.rotary_dim(head_dim);
  switch (rope.type) {
    case RopeType::kDefault:
      return {plain_frequencies(rope.theta, dim), 1.0};
    case RopeType::kLinear: {
      RotaryFrequencies result{plain_frequencies(rope.theta, dim), 1.0};
      for (float& frequency : result.inv_freq) frequency /= static_cast<float>(rope.factor);
      return result;
    }
    case RopeType::kDynamicNtk:
      return {plain_frequencies(dynamic_ntk_base(rope, dim, max_position_embeddings, max_model_len),
                                dim),
              1.0};
    case RopeType::kYarn:
      return {yarn_frequencies(rope, dim), yarn_attention_factor(rope)};
    case RopeType::kLlama3:
      return {llama3_frequencies(rope, dim), 1.0};
    case RopeType::kLongRope:
      return {longrope_frequencies(rope, dim, max_model_len), longrope_attention_factor(rope)};
  }
  check(false, "a RoPE type without frequencies");
  return {};
}

RotaryTable::RotaryTable(const ModelConfig& config, int64_t max_model_len, const Device& device)
    : buffer_(static_cast<size_t>(max_model_len) *
                  static_cast<size_t>(config.rope.rotary_dim(config.head_dim)) * sizeof(float),
              device),
      cos_sin_(buffer_.data(), DType::kFloat32,
               {max_model_len, config.rope.rotary_dim(config.head_dim)}) {
  const RotaryFrequencies frequencies = rotary_frequencies(
      config.rope, config.head_dim, config.max_position_embeddings, max_model_len);
  const auto factor = static_cast<float>(frequencies.attention_factor);
  const size_t half = frequencies.inv_freq.size();
  const auto fill = [&](float* row) {
    for (int64_t position = 0; position < max_model_len; ++position, row += 2 * half) {
      for (size_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(position) * frequencies.inv_freq[i];
        row[i] = std::cos(angle) * factor;
        row[half + i] = std::sin(angle) * factor;
      }
    }
  };
  if (device.memory == nullptr) {
    fill(cos_sin_.data<float>());
    return;
  }
  device.memory->upload(buffer_.data(), buffer_.size(),
                        [&](std::byte* from) { fill(reinterpret_cast<float*>(from)); });
}

}  // namespace quire
