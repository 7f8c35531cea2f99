#include "models/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "base/check.h"
#include "models/matrix_formats.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr std::string_view kEmbedding = "model.embed_tokens";
constexpr std::string_view kOutput = "lm_head";
constexpr std::string_view kFinalNorm = "model.norm";
constexpr std::string_view kLayers = "model.layers.";

// The part of the model that a stage holds.
struct Stage {
  int64_t first_layer = 0;
  int64_t last_layer = 0;
  bool embeds = false;
  bool computes_logits = false;
  // The output layer's table is one of its own: it isn't tied, or the embedding is in another
  // stage.
  bool has_output_table = false;
};

Stage stage_of(const ModelOptions& options) {
  const int64_t num_layers = options.config.num_hidden_layers;
  const int64_t last = options.last_layer < 0 ? num_layers : options.last_layer;
  check(options.first_layer >= 0 && options.first_layer < last && last <= num_layers,
        "a stage is a range of the model's layers");
  const bool embeds = options.first_layer == 0;
  const bool computes_logits = last == num_layers;
  const bool has_output_layer = computes_logits || (embeds && options.embeds_with_output_table);
  return {options.first_layer, last, embeds, computes_logits,
          has_output_layer && !(options.config.tie_word_embeddings && embeds)};
}

// The modules that the checkpoint has in the place of the fused module of this name, in the order
// of its parts.
std::vector<std::string> checkpoint_modules(const DecoderOptions& decoder,
                                            const std::string& fused) {
  std::map<size_t, std::string> parts;
  if (!decoder.fused_checkpoint) {
    for (const auto& [module, packed] : packed_modules()) {
      if (packed.module == fused) parts.emplace(packed.part, module);
    }
  }
  if (parts.empty()) return {fused};
  std::vector<std::string> modules;
  for (auto& [part, module] : parts) modules.push_back(std::move(module));
  return modules;
}

MatrixFormat layer_format(const ModelConfig& config, const DecoderOptions& decoder, int64_t layer,
                          std::string_view block, const std::string& module) {
  return format_of(config, fmt::format("{}{}.{}.", kLayers, layer, block),
                   checkpoint_modules(decoder, module));
}

MatrixFormat table_format(const ModelConfig& config, std::string_view module) {
  return format_of(config, "", std::vector{std::string(module)});
}

AttentionConfig attention_config(const ModelConfig& config, const DecoderOptions& decoder,
                                 int64_t layer) {
  return {.hidden_size = config.hidden_size,
          .num_heads = config.num_attention_heads,
          .num_kv_heads = config.num_key_value_heads,
          .head_dim = config.head_dim,
          .sliding_window = config.layer_sliding_window.at(static_cast<size_t>(layer)),
          .norm_eps = config.rms_norm_eps,
          .qkv_bias = decoder.qkv_bias,
          .o_bias = decoder.o_bias,
          .qk_norm = decoder.qk_norm,
          .qkv_format = layer_format(config, decoder, layer, "self_attn", "qkv_proj"),
          .o_format = layer_format(config, decoder, layer, "self_attn", "o_proj")};
}

MlpConfig mlp_config(const ModelConfig& config, const DecoderOptions& decoder, int64_t layer) {
  return {.hidden_size = config.hidden_size,
          .intermediate_size = config.intermediate_size,
          .bias = decoder.mlp_bias,
          .gate_up_format = layer_format(config, decoder, layer, "mlp", "gate_up_proj"),
          .down_format = layer_format(config, decoder, layer, "mlp", "down_proj")};
}

// Whether the checkpoint tensor is the module's weight, or one of those that it is stored in where
// it is quantised.
bool is_weight_of(std::string_view module, std::string_view tensor) {
  if (!tensor.starts_with(module)) return false;
  const std::string_view leaf = tensor.substr(module.size());
  return leaf.starts_with('.') && leaf.find('.', 1) == std::string_view::npos && leaf != ".bias";
}

// Checkpoint tensors of the whole model that this stage has no use for.
bool belongs_to_another_stage(std::string_view name, const Stage& stage, int64_t num_layers) {
  if (name.starts_with(kLayers)) {
    const std::string_view rest = name.substr(kLayers.size());
    int64_t layer = -1;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    return error == std::errc() && end != rest.data() + rest.size() && *end == '.' && layer >= 0 &&
           layer < num_layers && (layer < stage.first_layer || layer >= stage.last_layer);
  }
  return (is_weight_of(kEmbedding, name) && !stage.embeds) ||
         (is_weight_of(kOutput, name) && !stage.computes_logits && !stage.has_output_table) ||
         (is_weight_of(kFinalNorm, name) && !stage.computes_logits);
}

MemoryItem item_of(std::string name, std::optional<VocabTable>& table) {
  if (!table) return {std::move(name), 0, {}};
  return {std::move(name), parameter_bytes(*table), {describe(table->product(""))}};
}

// Both of its tensors as one, on a GPU.
Tensor whole(const IntermediateTensors& state) {
  const Tensor& hidden = state.hidden;
  const auto bytes = static_cast<size_t>(hidden.num_elements()) * size_of(hidden.dtype());
  check(static_cast<std::byte*>(hidden.raw()) + bytes == state.residual.raw(),
        "on a GPU a state's residual lies behind its hidden");
  return Tensor(hidden.raw(), hidden.dtype(), {2 * hidden.dim(0), hidden.dim(1)});
}

}  // namespace

std::vector<std::string> linear_layers_of_decoder(const ModelConfig& config,
                                                  const DecoderOptions& decoder) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kFused{
      {{"self_attn", "qkv_proj"},
       {"self_attn", "o_proj"},
       {"mlp", "gate_up_proj"},
       {"mlp", "down_proj"}}};
  std::vector<std::string> names;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const auto& [block, fused] : kFused) {
      for (const std::string& module : checkpoint_modules(decoder, std::string(fused))) {
        names.push_back(fmt::format("{}{}.{}.{}", kLayers, layer, block, module));
      }
    }
  }
  if (!config.tie_word_embeddings) names.emplace_back(kOutput);
  return names;
}

Decoder::Decoder(const ModelOptions& options, const DecoderOptions& decoder)
    : config_(checked_decoder_options(options).config),
      fused_checkpoint_(decoder.fused_checkpoint),
      at_{options.rank, options.size},
      has_peer_words_(options.has_peer_words),
      fills_gpu_(options.fills_gpu),
      dtype_(options.dtype),
      first_layer_(stage_of(options).first_layer),
      last_layer_(stage_of(options).last_layer),
      rotary_(config_, options.max_model_len, options.device) {
  const Stage stage = stage_of(options);
  const Placement place = matrix_placement(options);
  if (stage.embeds) {
    embed_tokens_.emplace(config_.vocab_size, config_.hidden_size, table_placement(options),
                          table_format(config_, kEmbedding));
  }
  for (int64_t layer = first_layer_; layer < last_layer_; ++layer) {
    layers_.push_back(std::make_unique<DecoderLayer>(attention_config(config_, decoder, layer),
                                                     mlp_config(config_, decoder, layer), place));
  }
  if (stage.computes_logits) final_norm_.emplace(place, config_.hidden_size, config_.rms_norm_eps);
  if (stage.has_output_table) {
    const std::string_view table = config_.tie_word_embeddings ? kEmbedding : kOutput;
    lm_head_.emplace(config_.vocab_size, config_.hidden_size, table_placement(options),
                     table_format(config_, table));
  }
}

ParameterMap Decoder::parameters() {
  ParameterMap parameters(fused_checkpoint_ ? PackedModules() : packed_modules());
  if (embed_tokens_) embed_tokens_->add_parameters(std::string(kEmbedding), parameters);
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->add_parameters(fmt::format("{}{}", kLayers, first_layer_ + static_cast<int64_t>(i)),
                               parameters);
  }
  if (final_norm_) final_norm_->add_parameters(std::string(kFinalNorm), parameters);
  const bool tied = config_.tie_word_embeddings;
  if (lm_head_) lm_head_->add_parameters(std::string(tied ? kEmbedding : kOutput), parameters);

  const Stage stage{first_layer_, last_layer_, embed_tokens_.has_value() || (lm_head_ && tied),
                    final_norm_.has_value(), lm_head_.has_value()};
  parameters.ignore([stage, num_layers = config_.num_hidden_layers](std::string_view name) {
    return belongs_to_another_stage(name, stage, num_layers);
  });
  parameters.ignore([tied](std::string_view name) {
    // Buffers that old versions of transformers saved, and a copy of a tied output layer.
    // Scales that the KV cache does not take.
    return name.ends_with(".rotary_emb.inv_freq") || (tied && is_weight_of(kOutput, name)) ||
           is_kv_cache_scale(name) || is_float8_attention_scale(name);
  });
  if (config_.quantization && !config_.quantization->is_gguf()) {
    parameters.ignore(is_unused_by_quantised_layers);
    // AutoGPTQ writes a bias for layers that have none; symmetric layers may have zero points.
    parameters.ignore_zeros([](std::string_view name) {
      return name.ends_with("_proj.bias") || name.ends_with(".weight_zero_point");
    });
  }
  return parameters;
}

LoraSites Decoder::lora_sites() const {
  LoraSites sites(fused_checkpoint_ ? PackedModules() : packed_modules());
  if (embed_tokens_) embed_tokens_->add_embedding_site(std::string(kEmbedding), sites);
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->add_lora_sites(fmt::format("{}{}", kLayers, first_layer_ + static_cast<int64_t>(i)),
                               sites);
  }
  if (!final_norm_) return sites;
  final_norm_->add_lora_sites(std::string(kFinalNorm), sites);
  output_table().add_output_site(std::string(kOutput), sites);
  return sites;
}

std::vector<MemoryItem> Decoder::memory() {
  DecoderMemory memory;
  for (const auto& layer : layers_) layer->add_memory(memory);
  if (final_norm_) memory.norms.bytes += parameter_bytes(*final_norm_);
  return {item_of("embedding", embed_tokens_),
          memory.attention,
          memory.mlp,
          memory.norms,
          item_of("output layer", lm_head_),
          {"rotary table", rotary_.bytes(), {std::string(name_of(DType::kFloat32))}}};
}

KvCacheShape Decoder::kv_cache_shape() const {
  const Attention& attention = layers_.front()->attention();
  return {.num_layers = static_cast<int64_t>(layers_.size()),
          .num_kv_heads = attention.num_kv_heads(),
          .head_dim = attention.head_dim()};
}

std::vector<MatrixProduct> Decoder::products() const {
  std::vector<MatrixProduct> products;
  for (const auto& layer : layers_) layer->add_products(products);
  if (final_norm_) products.push_back(output_table().product(std::string(kOutput)));
  return products;
}

void Decoder::bind_cache(Stream& stream, Communicator& comm,
                         std::span<const KvCacheView> kv_caches) {
  check(kv_caches.size() == layers_.size(), "each layer has its part of the KV cache");
  kv_caches_ = kv_caches;
  if (stream.is_cpu() || !fills_gpu_) return;
  // All ranks have to decide alike, here and in takes(): a kernel of one would wait for those of
  // the others for ever. What they decide by is the same on all: the GPUs' kind, sizes, the batch.
  const PeerWords peers = has_peer_words_ ? comm.peer_words() : PeerWords();
  if (peers.size == at_.size) make_decoder_step(stream, peers);
}

void Decoder::make_decoder_step(Stream& stream, const PeerWords& peers) {
  std::vector<ops::DecoderStepLayer> layers(layers_.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers_[i]->describe(layers[i], adapters_)) return;
  }
  const Attention& attention = layers_.front()->attention();
  const ops::DecoderStepModel model = {
      .dtype = dtype_,
      .num_heads = attention.num_heads(),
      .eps = static_cast<float>(config_.rms_norm_eps),
      .scale = attention.scale(),
      .cos_sin = rotary_.cos_sin(),
      .embedding = embed_tokens_ ? &embed_tokens_->weight() : nullptr,
      .final_norm = final_norm_ ? final_norm_->weight() : Tensor(),
      .layers = layers,
      .caches = kv_caches_,
      .peers = peers};
  decoder_step_ = ops::DecoderStep::make(stream, model);
}

IntermediateTensors Decoder::forward(ForwardContext& context,
                                     std::optional<IntermediateTensors> previous) {
  check(previous.has_value() != embed_tokens_.has_value(),
        "the first stage embeds, every other one is given the hidden state");
  check(kv_caches_.size() == layers_.size(), "the model knows its KV cache");
  IntermediateTensors state;
  if (previous) {
    state = *previous;
  } else {
    const int64_t rows = context.batch.num_tokens;
    const size_t bytes =
        2 * IntermediateTensors::bytes_each(context.dtype, rows, config_.hidden_size);
    const Tensor both = context.arena.allocate(DType::kInt8, {static_cast<int64_t>(bytes)});
    state = IntermediateTensors::lying_at(static_cast<std::byte*>(both.raw()), context.dtype, rows,
                                          config_.hidden_size);
  }
  if (runs_one_step(context)) {
    run_step(context, state);
  } else {
    run_layers(context, state);
  }
  if (final_norm_) hand_out(context, config_.num_hidden_layers, state.hidden);
  return state;
}

bool Decoder::runs_one_step(const ForwardContext& context) const {
  if (!decoder_step_ || context.lora != nullptr) return false;
  if (context.gpu_lora != nullptr) {
    const LoraExtras& extras = context.gpu_lora->extras();
    if (!decoder_step_->takes_adapters() || extras.embedding || extras.norms || extras.copies) {
      return false;
    }
  }
  return decoder_step_->takes(context.batch) && can_tap(context.aux);
}

// The kernel hands out all rows, of layers that this stage has.
bool Decoder::can_tap(const AuxStates* aux) const {
  if (aux == nullptr || aux->layers.front() == config_.num_hidden_layers) return true;
  return aux->has_all_rows && aux->layers.front() >= first_layer_ &&
         aux->layers.back() < last_layer_;
}

std::vector<int64_t> Decoder::tapped_layers(const AuxStates* aux) const {
  if (aux == nullptr || aux->layers.front() == config_.num_hidden_layers) return {};
  std::vector<int64_t> layers(aux->layers.begin(), aux->layers.end());
  for (int64_t& layer : layers) layer -= first_layer_;
  return layers;
}

void Decoder::run_step(ForwardContext& context, const IntermediateTensors& state) const {
  const Tensor both = whole(state);
  Tensor in;
  if (!embed_tokens_) {
    in = both;
    if (at_.size > 1) context.comm.all_reduce_sum(context.stream, state.hidden);
  } else if (at_.size > 1) {
    in = state.residual;
    embed_tokens(context, *embed_tokens_, in);
  }
  const std::vector<int64_t> tapped = tapped_layers(context.aux);
  ops::DecoderStepTaps taps;
  if (!tapped.empty()) taps = {.layers = tapped, .out = context.aux->out};
  decoder_step_->run(context.stream, context.batch, in, final_norm_ ? state.hidden : both, taps,
                     context.gpu_lora != nullptr ? &context.gpu_lora->rows() : nullptr);
}

void Decoder::run_layers(ForwardContext& context, const IntermediateTensors& state) const {
  if (context.gpu_lora != nullptr) context.gpu_lora->begin(context.stream);
  if (embed_tokens_) embed_tokens(context, *embed_tokens_, state.residual);
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->forward(context, rotary_.cos_sin(), kv_caches_[i],
                        first_layer_ + static_cast<int64_t>(i), state);
  }
  if (final_norm_) final_norm_->forward_add(context, state.hidden, state.residual, state.hidden);
}

VocabTables Decoder::vocab_tables() const {
  const bool has_output = lm_head_ || (embed_tokens_ && config_.tie_word_embeddings);
  return {.embedding = embed_tokens_ ? &*embed_tokens_ : nullptr,
          .output = has_output ? &output_table() : nullptr};
}

Tensor Decoder::compute_logits(ForwardContext& context, const Tensor& hidden) {
  check(final_norm_.has_value(), "the last stage computes the logits");
  return compute_vocab_logits(context, output_table(), hidden);
}

}  // namespace quire
