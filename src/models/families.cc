#include "models/families.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/eagle_head.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr ModelFamily kFamilies[] = {
    // Llama 2 to 3.2. attention_bias is of all four projections, mlp_bias of the MLP's three.
    {"LlamaForCausalLM",
     [](const ModelConfig& config) -> DecoderOptions {
       return {.qkv_bias = config.attention_bias,
               .o_bias = config.attention_bias,
               .mlp_bias = config.mlp_bias};
     }},
    {"MistralForCausalLM", [](const ModelConfig&) -> DecoderOptions { return {}; }},
    // Phi-3, Phi-3.5 and Phi-4-mini.
    {"Phi3ForCausalLM",
     [](const ModelConfig&) -> DecoderOptions { return {.fused_checkpoint = true}; }},
    // Qwen2 and Qwen2.5.
    {"Qwen2ForCausalLM", [](const ModelConfig&) -> DecoderOptions { return {.qkv_bias = true}; }},
    // attention_bias is of all four projections.
    {"Qwen3ForCausalLM",
     [](const ModelConfig& config) -> DecoderOptions {
       return {.qkv_bias = config.attention_bias, .o_bias = config.attention_bias, .qk_norm = true};
     }},
};

const ModelFamily& family_of(const ModelConfig& config) {
  std::string supported;
  for (const ModelFamily& family : kFamilies) {
    if (family.architecture == config.architecture) return family;
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", family.architecture);
  }
  throw Error(fmt::format("config.json: architectures is [\"{}\"]; supported are {}.",
                          config.architecture, supported));
}

// A group of layers that no model of this config has would be left out without a word.
void check_named_layers(const ModelConfig& config) {
  if (!config.quantization || config.quantization->is_gguf()) return;
  const std::vector<std::string> layers = linear_layers(config);
  const std::set<std::string_view> known(layers.begin(), layers.end());
  for (const auto& [name, scheme] : config.quantization->layers) {
    // The tables may be one.
    const bool is_table = name == "model.embed_tokens" || name == "lm_head";
    if (!scheme || is_table || known.contains(name)) continue;
    throw Error(fmt::format(
        "config.json: quantization_config quantises the layer {}, which the model does not have; "
        "expected a linear layer, such as {}.",
        name, layers.front()));
  }
}

}  // namespace

std::span<const ModelFamily> model_families() {
  return kFamilies;
}

std::vector<std::string> linear_layers(const ModelConfig& config) {
  for (const ModelFamily& family : kFamilies) {
    if (family.architecture != config.architecture) continue;
    return linear_layers_of_decoder(config, family.options(config));
  }
  return {};
}

std::unique_ptr<Model> create_model(const ModelOptions& options) {
  if (options.eagle) return std::make_unique<EagleHead>(options);
  const ModelFamily& family = family_of(options.config);
  check_named_layers(options.config);
  return std::make_unique<Decoder>(options, family.options(options.config));
}

}  // namespace quire
