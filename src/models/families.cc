#include "models/families.h"

#include <fmt/format.h>

#include <string>

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
  return std::make_unique<Decoder>(options, family_of(options.config).options(options.config));
}

}  // namespace quire
