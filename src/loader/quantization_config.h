#pragma once
// Which layers of a checkpoint are quantised, and how: what config.json's quantization_config, or a
// file's header, says before any weight is read.
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
  // By whole names; none: dense. Layers that are not among them follow the first rule that matches;
  // those that no rule matches are dense.
  std::map<std::string, std::optional<WeightScheme>, std::less<>> layers = {};
  std::vector<LayerRule> rules = {};

  // How the matrix of this layer, named without ".weight", is stored; none: as a dense one.
  std::optional<WeightScheme> scheme_of(std::string_view layer) const;
  // Whether a GGUF file's tensors say it, not a quantization_config.
  bool is_gguf() const;
  // Whether a scheme of some layers stores integers.
  bool has_integers() const;
  // Of these layers: "GPTQ, 4 bits, groups of 128; 196 of 197 layers, not lm_head". Of none: the
  // schemes.
  std::string describe(std::span<const std::string> names) const;

  bool operator==(const QuantizationConfig&) const = default;
};

// Whether the tensor of this name is about quantised activations or caches: numbers that quire
// needs nothing of.
bool is_unused_by_quantised_layers(std::string_view tensor);

}  // namespace quire
