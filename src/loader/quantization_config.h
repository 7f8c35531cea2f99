#pragma once
// Which layers of a checkpoint are quantised, and how: what config.json's quantization_config, or a
// file's header, says before any weight is read.
//
// Thread safety: a plain value.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/weight_scheme.h"

namespace quire {

// Layers by name, such as "model.layers.0.mlp.down_proj", or by class.
struct LayerPattern {
  enum class Kind : uint8_t {
    kName,   // the layer's whole name
    kClass,  // "Linear" or "Embedding"
  };
  Kind kind = Kind::kName;
  std::string text;

  bool matches(std::string_view layer) const;
  bool operator==(const LayerPattern&) const = default;
};

struct LayerRule {
  LayerPattern pattern;
  std::optional<WeightScheme> scheme;  // none: dense

  bool operator==(const LayerRule&) const = default;
};

struct QuantizationConfig {
  // By whole names. Layers that are not among them follow the first rule that matches; those that
  // no rule matches are dense.
  std::map<std::string, WeightScheme, std::less<>> layers = {};
  std::vector<LayerRule> rules = {};

  // How the matrix of this layer, named without ".weight", is stored; none: as a dense one.
  std::optional<WeightScheme> scheme_of(std::string_view layer) const;
  // "compressed-tensors float-quantized, float8 e4m3, ..., but for lm_head".
  std::string describe() const;

  bool operator==(const QuantizationConfig&) const = default;
};

}  // namespace quire
