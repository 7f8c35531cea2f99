#include "models/decoder_layer.h"

#include <algorithm>

#include "layers/forward_context.h"
#include "ops/embedding.h"

namespace quire {

PackedModules packed_modules() {
  return {{"q_proj", {"qkv_proj", 0}},
          {"k_proj", {"qkv_proj", 1}},
          {"v_proj", {"qkv_proj", 2}},
          {"gate_proj", {"gate_up_proj", 0}},
          {"up_proj", {"gate_up_proj", 1}}};
}

void hand_out(ForwardContext& context, int64_t layer, const Tensor& input) {
  if (context.aux == nullptr) return;
  const AuxStates& aux = *context.aux;
  const auto found = std::ranges::find(aux.layers, layer);
  if (found == aux.layers.end()) return;
  const int64_t first = (found - aux.layers.begin()) * input.dim(1);
  ops::gather_rows(context.stream, input, aux.rows, aux.out.columns(first, first + input.dim(1)));
}

DecoderLayer::DecoderLayer(const AttentionConfig& attention, const MlpConfig& mlp,
                           const Placement& place)
    : input_norm_(place, attention.hidden_size, attention.norm_eps),
      attention_(attention, place),
      post_attention_norm_(place, attention.hidden_size, attention.norm_eps),
      mlp_(mlp, place) {}

void DecoderLayer::add_parameters(const std::string& name, ParameterMap& parameters) {
  input_norm_.add_parameters(name + ".input_layernorm", parameters);
  attention_.add_parameters(name + ".self_attn", parameters);
  post_attention_norm_.add_parameters(name + ".post_attention_layernorm", parameters);
  mlp_.add_parameters(name + ".mlp", parameters);
}

void DecoderLayer::add_lora_sites(const std::string& name, LoraSites& sites) const {
  input_norm_.add_lora_sites(name + ".input_layernorm", sites);
  attention_.add_lora_sites(name + ".self_attn", sites);
  post_attention_norm_.add_lora_sites(name + ".post_attention_layernorm", sites);
  mlp_.add_lora_sites(name + ".mlp", sites);
}

void DecoderLayer::add_memory(DecoderMemory& memory) {
  add_matrices(attention_, memory.attention);
  add_matrices(mlp_, memory.mlp);
  memory.norms.bytes += parameter_bytes(input_norm_) + parameter_bytes(post_attention_norm_);
}

void DecoderLayer::add_products(std::vector<MatrixProduct>& products) const {
  attention_.add_products(products);
  mlp_.add_products(products);
}

bool DecoderLayer::describe(ops::DecoderStepLayer& layer, const GpuLora* adapters) const {
  layer.input_norm = input_norm_.weight();
  layer.post_norm = post_attention_norm_.weight();
  return attention_.describe(layer, adapters) && mlp_.describe(layer, adapters);
}

void DecoderLayer::forward(ForwardContext& context, const Tensor& cos_sin, const KvCacheView& cache,
                           int64_t layer, const IntermediateTensors& state) const {
  const auto& [hidden, residual] = state;
  {
    const Arena::Scope scope(context.arena);
    LinearInput input = attention_.input(context, hidden);
    if (layer == 0) {
      input_norm_.forward(context, residual, input);
    } else {
      input_norm_.forward_add(context, hidden, residual, input);
    }
    hand_out(context, layer, residual);
    attention_.forward(context, cos_sin, cache, input, hidden);
  }
  const Arena::Scope scope(context.arena);
  LinearInput input = mlp_.input(context, hidden);
  post_attention_norm_.forward_add(context, hidden, residual, input);
  mlp_.forward(context, input, hidden);
}

}  // namespace quire
