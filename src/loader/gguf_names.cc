#include "loader/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace quire {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;

// Without ".weight" and ".bias".
constexpr NamePair kModelNames[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};

// Of a layer, after "blk.N." and "model.layers.N.".
constexpr NamePair kLayerNames[] = {{"attn_norm", "input_layernorm"},
                                    {"attn_q", "self_attn.q_proj"},
                                    {"attn_k", "self_attn.k_proj"},
                                    {"attn_v", "self_attn.v_proj"},
                                    {"attn_qkv", "self_attn.qkv_proj"},
                                    {"attn_output", "self_attn.o_proj"},
                                    {"attn_q_norm", "self_attn.q_norm"},
                                    {"attn_k_norm", "self_attn.k_norm"},
                                    {"ffn_norm", "post_attention_layernorm"},
                                    {"ffn_gate", "mlp.gate_proj"},
                                    {"ffn_up", "mlp.up_proj"},
                                    {"ffn_down", "mlp.down_proj"}};

// Empty where the name is not listed.
template <size_t kCount>
std::string_view look_up(const NamePair (&names)[kCount], std::string_view name) {
  for (const auto& [from, to] : names) {
    if (from == name) return to;
  }
  return {};
}

// Phi-3's layer of this name is the gate's and the up-projection's rows, one below the other.
constexpr NamePair kPhi3GateUp = {"ffn_up", "mlp.gate_up_proj"};

std::string_view layer_module(std::string_view architecture, std::string_view module) {
  if (architecture == "phi3" && module == kPhi3GateUp.first) return kPhi3GateUp.second;
  return look_up(kLayerNames, module);
}

// Empty where no name stands for this one.
template <size_t kCount>
std::string_view look_up_source(const NamePair (&names)[kCount], std::string_view name) {
  for (const auto& [from, to] : names) {
    if (to == name) return from;
  }
  return {};
}

}  // namespace

std::string hugging_face_name(std::string_view architecture, std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::string(name);
  const std::string_view leaf = name.substr(dot);
  const std::string_view module = name.substr(0, dot);
  if (const std::string_view found = look_up(kModelNames, module); !found.empty()) {
    return fmt::format("{}{}", found, leaf);
  }
  constexpr std::string_view kBlock = "blk.";
  const size_t end = module.find('.', kBlock.size());
  if (!module.starts_with(kBlock) || end == std::string_view::npos) return std::string(name);
  const std::string_view number = module.substr(kBlock.size(), end - kBlock.size());
  const std::string_view found = layer_module(architecture, module.substr(end + 1));
  if (found.empty()) return std::string(name);
  return fmt::format("model.layers.{}.{}{}", number, found, leaf);
}

std::string gguf_name(std::string_view architecture, std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::string(name);
  const std::string_view leaf = name.substr(dot);
  const std::string_view module = name.substr(0, dot);
  if (const std::string_view found = look_up_source(kModelNames, module); !found.empty()) {
    return fmt::format("{}{}", found, leaf);
  }
  constexpr std::string_view kLayer = "model.layers.";
  const size_t end = module.find('.', kLayer.size());
  if (!module.starts_with(kLayer) || end == std::string_view::npos) return std::string(name);
  const std::string_view number = module.substr(kLayer.size(), end - kLayer.size());
  const std::string_view rest = module.substr(end + 1);
  const std::string_view found = architecture == "phi3" && rest == kPhi3GateUp.second
                                     ? kPhi3GateUp.first
                                     : look_up_source(kLayerNames, rest);
  if (found.empty()) return std::string(name);
  return fmt::format("blk.{}.{}{}", number, found, leaf);
}

bool is_config_tensor(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

}  // namespace quire
