#include "loader/gguf_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "loader/model_limits.h"

namespace quire::loader_internal {
namespace {

constexpr const char* kDimension = "rope.dimension_count";
constexpr const char* kScalingType = "rope.scaling.type";
constexpr const char* kLinearFactor = "rope.scale_linear";
constexpr const char* kFactor = "rope.scaling.factor";
constexpr const char* kOriginalLength = "rope.scaling.original_context_length";
constexpr const char* kAttentionFactor = "rope.scaling.attn_factor";
constexpr const char* kBetaFast = "rope.scaling.yarn_beta_fast";
constexpr const char* kBetaSlow = "rope.scaling.yarn_beta_slow";

// The share of a head whose product with head_dim, rounded towards zero, is `dim`.
double share_of(int64_t dim, int64_t head_dim) {
  const double share = static_cast<double>(dim) / static_cast<double>(head_dim);
  const bool is_short = static_cast<int64_t>(share * static_cast<double>(head_dim)) < dim;
  return is_short ? std::nextafter(share, 1.0) : share;
}

void read_rotary_dim(const GgufKeys& keys, int64_t head_dim, RopeConfig& rope) {
  const int64_t dim = keys.integer(kDimension, 2, head_dim).value_or(head_dim);
  if (dim % 2 != 0) keys.fail(kDimension, fmt::format("is {}; expected an even number", dim));
  if (keys.architecture() == "llama" && dim != head_dim) {
    keys.fail(kDimension, fmt::format("is {}; expected {}, a whole head, as the rows of llama's "
                                      "weights are in the order of whole heads' rotation",
                                      dim, head_dim));
  }
  rope.partial_rotary_factor = share_of(dim, head_dim);
}

double required_factor(const GgufKeys& keys) {
  const std::optional<double> factor = keys.number(kFactor, 1.0, kMaxFactor);
  if (!factor) keys.fail(kFactor, "is missing; expected a number from 1 up");
  return *factor;
}

void read_yarn(const GgufKeys& keys, RopeConfig& rope) {
  rope.type = RopeType::kYarn;
  rope.factor = required_factor(keys);
  rope.beta_fast = keys.number(kBetaFast, kTiny, kMaxFactor).value_or(rope.beta_fast);
  rope.beta_slow = keys.number(kBetaSlow, kTiny, kMaxFactor).value_or(rope.beta_slow);
  if (rope.beta_fast < rope.beta_slow) {
    keys.fail(kBetaFast,
              fmt::format("is {}, below {}, {}", rope.beta_fast, kBetaSlow, rope.beta_slow));
  }
  // llama.cpp multiplies the usual factor, 0.1 ln(factor) + 1, by this one.
  if (const auto factor = keys.number(kAttentionFactor, kTiny, kMaxFactor)) {
    rope.attention_factor = *factor * (0.1 * std::log(rope.factor) + 1.0);
  }
}

void read_scaling(const GgufKeys& keys, RopeConfig& rope) {
  // The older spelling of linear scaling, which the newer one goes before.
  const std::optional<double> linear = keys.number(kLinearFactor, 1.0, kMaxFactor);
  const bool has_factor = linear || keys.has(kFactor);
  const std::string type(keys.string(kScalingType).value_or(has_factor ? "linear" : "none"));
  if (type == "linear") {
    rope.type = RopeType::kLinear;
    rope.factor = keys.has(kFactor) ? required_factor(keys) : linear.value_or(1.0);
  } else if (type == "yarn") {
    read_yarn(keys, rope);
  } else if (type != "none" && type != "longrope") {
    keys.fail(kScalingType,
              fmt::format("is {}; expected none, linear, yarn or longrope", shown_name(type)));
  }
}

// What each frequency is divided by, where the file says so: Phi-3's LongRoPE, and Llama 3's
// scaling, which is the same for all lengths.
void read_factors(const GgufKeys& keys, int64_t head_dim, int64_t max_positions, RopeConfig& rope) {
  const int64_t count = rope.rotary_dim(head_dim) / 2;
  auto common = keys.factors("rope_freqs.weight", count);
  auto short_factors = keys.factors("rope_factors_short.weight", count);
  auto long_factors = keys.factors("rope_factors_long.weight", count);
  if (!common && !short_factors && !long_factors) {
    if (keys.string(kScalingType) == "longrope") {
      keys.fail(kScalingType, "is longrope, but there is no tensor rope_factors_long.weight");
    }
    return;
  }
  const bool is_long = short_factors && long_factors;
  if (common ? short_factors || long_factors : !is_long) {
    keys.fail(kScalingType,
              "goes with either the tensor rope_freqs.weight or both of "
              "rope_factors_short.weight and rope_factors_long.weight");
  }
  if (rope.type != RopeType::kDefault) {
    keys.fail(kScalingType, "scales RoPE, and so does a tensor of factors; expected one of them");
  }
  rope.type = RopeType::kLongRope;
  if (common) {
    rope.attention_factor = 1.0;
    rope.short_factor = *common;
    rope.long_factor = std::move(*common);
    return;
  }
  rope.short_factor = std::move(*short_factors);
  rope.long_factor = std::move(*long_factors);
  rope.attention_factor = keys.number(kAttentionFactor, kTiny, kMaxFactor);
  rope.factor = std::max(1.0, static_cast<double>(max_positions) /
                                  static_cast<double>(rope.original_max_position_embeddings));
}

}  // namespace

// YaRN's parameters of llama.cpp that change the result unless they are its defaults.
void check_yarn_factors(const GgufKeys& keys) {
  for (const char* key : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    const double factor = keys.number(key, -1.0, kMaxFactor).value_or(1.0);
    if (factor != 1.0 && factor != -1.0) {
      keys.fail(key, fmt::format("is {}; expected 1, or -1 for none", factor));
    }
  }
}

RopeConfig gguf_rope_config(const GgufKeys& keys, int64_t head_dim, int64_t max_positions) {
  RopeConfig rope;
  rope.theta = keys.number("rope.freq_base", 1.0 + kTiny, kMaxTheta).value_or(rope.theta);
  read_rotary_dim(keys, head_dim, rope);
  rope.original_max_position_embeddings =
      keys.integer(kOriginalLength, 2, kMaxPositions).value_or(max_positions);
  check_yarn_factors(keys);
  read_scaling(keys, rope);
  read_factors(keys, head_dim, max_positions, rope);
  return rope;
}

}  // namespace quire::loader_internal
