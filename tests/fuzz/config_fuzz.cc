// The bytes are a config.json, of a model or of an EAGLE-3 head. What is accepted must have sizes
// that the rest can compute with.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "loader/eagle_config.h"
#include "loader/model_config.h"
#include "quire/error.h"

namespace {

void read_head(std::string_view json) {
  quire::ModelConfig target;
  target.vocab_size = 128;
  target.hidden_size = 32;
  target.num_hidden_layers = 8;
  try {
    const auto kind = json.size() % 2 == 0 ? quire::EagleKind::kEagle : quire::EagleKind::kEagle3;
    const quire::EagleConfig head = quire::parse_eagle_config(json, "fuzz", kind, target);
    const std::vector<int64_t>& layers = head.aux_layers;
    const bool sound = head.draft_vocab_size >= 1 && head.draft_vocab_size <= 128 &&
                       !layers.empty() && layers.size() <= quire::kMaxAuxLayers &&
                       layers.front() >= 0 &&
                       layers.back() < (kind == quire::EagleKind::kEagle ? 9 : 8) &&
                       head.target_hidden_size == 32 && head.layers.vocab_size == 128;
    if (!sound) std::abort();
  } catch (const quire::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  read_head(json);
  try {
    const quire::ModelConfig config = quire::parse_model_config(json, "fuzz");
    const bool sound =
        config.num_attention_heads % config.num_key_value_heads == 0 && config.head_dim % 2 == 0 &&
        config.max_model_len() > 0 &&
        config.rope.short_factor.size() == config.rope.long_factor.size() &&
        config.layer_sliding_window.size() == static_cast<size_t>(config.num_hidden_layers);
    if (!sound) std::abort();
    if (config.quantization) {
      const std::vector<std::string> layers{"model.layers.0.mlp.down_proj", "lm_head"};
      if (config.quantization->describe(layers).empty()) std::abort();
      for (const std::string& layer : layers) {
        const auto scheme = config.quantization->scheme_of(layer);
        if (scheme && leaves_of(*scheme, layer, 128, 256).size() < 2) std::abort();
      }
    }
  } catch (const quire::Error&) {
  }
  return 0;
}
