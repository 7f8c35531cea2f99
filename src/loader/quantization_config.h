#pragma once
// Which layers of a checkpoint are quantised, and how: from config.json's quantization_config, or
// from a file's header, before any weight is read.
//
// Thread safety: a plain value.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/layer_pattern.h"
#include "loader/weight_scheme.h"

namespace quire {

struct LayerRule {
  LayerPattern pattern;
  std::optional<WeightScheme> scheme;  // none: dense

  bool operator==(const LayerRule&) const = default;
};

struct QuantizationConfig {
  // By whole names; none: dense. Other layers follow the first rule that matches; layers that no
  // rule matches are dense.
  std::map<std::string, std::optional<WeightScheme>, std::less<>> layers = {};
  std::vector<LayerRule> rules = {};

  // How the matrix of this layer, named without ".weight", is stored; none: as a dense one.
  std::optional<WeightScheme> scheme_of(std::string_view layer) const;
  // Whether this comes from a GGUF file's tensors, not from a quantization_config.
  bool is_gguf() const;
  // Whether a scheme of some layers stores integers.
  bool has_integers() const;
  // Describes these layers: "GPTQ, 4 bits, groups of 128; 196 of 197 layers, not lm_head". With no
  // names: the schemes.
  std::string describe(std::span<const std::string> names) const;

  bool operator==(const QuantizationConfig&) const = default;
};

// Whether the tensor of this name belongs to quantised activations or caches; quire does not need
// these.
bool is_unused_by_quantised_layers(std::string_view tensor);
// Whether a checkpoint's tensor is a scale of the KV cache (layers/kv_scales.h).
bool is_kv_cache_scale(std::string_view tensor);
// Whether it is a scale of queries or probabilities, of attention that computes in float8.
bool is_float8_attention_scale(std::string_view tensor);

}  // namespace quire
