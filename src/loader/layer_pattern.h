#pragma once
// Which layers of a model a quantization_config means: the ways in which its methods name them.
//
// Layers are named without ".weight": "model.layers.0.mlp.down_proj". Thread safety: immutable.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace quire {

class LayerPattern {
 public:
  // The layer of this name.
  static LayerPattern name(std::string text);
  // "Linear" or "Embedding".
  static LayerPattern layer_class(std::string text);
  // Names that have this in them.
  static LayerPattern part(std::string text);
  // Names that end with this.
  static LayerPattern ending(std::string text);
  // Names that end with this, and those of layers below the one of this name: "model.layers.1"
  // means "model.layers.1.mlp.up_proj" too, but not "model.layers.11.mlp.up_proj".
  static LayerPattern tree(std::string text);
  // Names whose beginning matches, as with Python's re.match. Throws Error, which begins with
  // `field`, where it is no regular expression; matches() does where it takes too many steps.
  static LayerPattern regex(std::string text, const std::string& field);

  bool matches(std::string_view layer) const;

  bool operator==(const LayerPattern& other) const {
    return kind_ == other.kind_ && text_ == other.text_;
  }

 private:
  enum class Kind : uint8_t { kName, kClass, kPart, kEnding, kTree, kRegex };

  LayerPattern(Kind kind, std::string text) : kind_(kind), text_(std::move(text)) {}

  Kind kind_;
  std::string text_;
  std::function<bool(std::string_view)> regex_;  // of kRegex
};

}  // namespace quire
