#include "models/eagle_head.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "models/matrix_formats.h"
#include "ops/embedding.h"

namespace quire {
namespace {

const EagleConfig& eagle_of(const ModelOptions& options) {
  check(options.eagle.has_value(), "a head has its own config");
  return *options.eagle;
}

// Of `fc`: of EAGLE-3 the states of a token, of EAGLE its embedding and its state.
int64_t num_fc_inputs(const EagleConfig& eagle) {
  if (eagle.kind == EagleKind::kEagle) return 2 * eagle.target_hidden_size;
  return static_cast<int64_t>(eagle.aux_layers.size()) * eagle.target_hidden_size;
}

std::optional<RmsNorm> norm_of_eagle3(const ModelOptions& options) {
  if (eagle_of(options).kind == EagleKind::kEagle) return std::nullopt;
  return std::make_optional<RmsNorm>(matrix_placement(options), options.config.hidden_size,
                                     options.config.rms_norm_eps);
}

// The name of a layer, as the checkpoint has it.
std::string layer_name(const EagleConfig& eagle, int64_t layer) {
  return layer == 0 ? eagle.first_layer : fmt::format("layers.{}", layer);
}

MatrixFormat eagle_format(const ModelOptions& options, int64_t layer, std::string_view block,
                          const std::vector<std::string>& modules) {
  const std::string prefix = fmt::format("{}.{}.", layer_name(eagle_of(options), layer), block);
  return format_of(options.config, prefix, modules);
}

MatrixFormat eagle_format(const ModelOptions& options, const char* module) {
  return format_of(options.config, "", std::vector{std::string(module)});
}

AttentionConfig eagle_attention(const ModelOptions& options, int64_t layer) {
  const ModelConfig& config = options.config;
  return {.hidden_size = config.hidden_size,
          .input_size = layer == 0 && eagle_of(options).kind == EagleKind::kEagle3
                            ? 2 * config.hidden_size
                            : 0,
          .num_heads = config.num_attention_heads,
          .num_kv_heads = config.num_key_value_heads,
          .head_dim = config.head_dim,
          .sliding_window = config.layer_sliding_window.at(static_cast<size_t>(layer)),
          .norm_eps = config.rms_norm_eps,
          .qkv_bias = config.attention_bias,
          .o_bias = config.attention_bias,
          .qk_norm = eagle_of(options).qk_norm,
          .qkv_format = eagle_format(options, layer, "self_attn", {"q_proj", "k_proj", "v_proj"}),
          .o_format = eagle_format(options, layer, "self_attn", {"o_proj"})};
}

MlpConfig eagle_mlp(const ModelOptions& options, int64_t layer) {
  const ModelConfig& config = options.config;
  return {.hidden_size = config.hidden_size,
          .intermediate_size = config.intermediate_size,
          .bias = config.mlp_bias,
          .gate_up_format = eagle_format(options, layer, "mlp", {"gate_proj", "up_proj"}),
          .down_format = eagle_format(options, layer, "mlp", {"down_proj"})};
}

}  // namespace

EagleHead::EagleHead(const ModelOptions& options)
    : config_(checked_decoder_options(options).config),
      eagle_(eagle_of(options)),
      rotary_(config_, options.max_model_len, options.device),
      fc_(replicated_linear(config_.hidden_size, num_fc_inputs(eagle_), eagle_.fc_bias),
          matrix_placement(options), eagle_format(options, "fc")),
      first_{norm_of_eagle3(options), norm_of_eagle3(options),
             Attention(eagle_attention(options, 0), matrix_placement(options)),
             RmsNorm(matrix_placement(options), config_.hidden_size, config_.rms_norm_eps),
             Mlp(eagle_mlp(options, 0), matrix_placement(options))},
      final_norm_(matrix_placement(options), config_.hidden_size, config_.rms_norm_eps) {
  for (int64_t layer = 1; layer < config_.num_hidden_layers; ++layer) {
    layers_.push_back(std::make_unique<DecoderLayer>(
        eagle_attention(options, layer), eagle_mlp(options, layer), matrix_placement(options)));
  }
  if (eagle_.has_embedding) {
    own_embedding_.emplace(config_.vocab_size, config_.hidden_size, table_placement(options),
                           eagle_format(options, "embed_tokens"));
  }
  if (eagle_.has_output_table) {
    own_output_.emplace(eagle_.draft_vocab_size, config_.hidden_size, table_placement(options),
                        eagle_format(options, "lm_head"));
  }
}

void EagleHead::share(const VocabTables& target, const Tensor& row_ids) {
  shared_ = target;
  row_ids_ = row_ids;
}

ParameterMap EagleHead::parameters() {
  ParameterMap parameters(packed_modules());
  fc_.add_parameters("fc", parameters);
  if (own_embedding_) own_embedding_->add_parameters("embed_tokens", parameters);
  const std::string& name = eagle_.first_layer;
  if (projects()) {
    first_.input_norm->add_parameters(name + ".input_layernorm", parameters);
    first_.hidden_norm->add_parameters(name + ".hidden_norm", parameters);
    final_norm_.add_parameters("norm", parameters);
  }
  first_.attention.add_parameters(name + ".self_attn", parameters);
  first_.post_attention_norm.add_parameters(name + ".post_attention_layernorm", parameters);
  first_.mlp.add_parameters(name + ".mlp", parameters);
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->add_parameters(fmt::format("layers.{}", i + 1), parameters);
  }
  if (own_output_) own_output_->add_parameters("lm_head", parameters);
  // The maps between the vocabularies, and what training keeps of the target.
  parameters.ignore([](std::string_view tensor) {
    return tensor == "d2t" || tensor == "t2d" || tensor.starts_with("verifier_") ||
           tensor.ends_with(".rotary_emb.inv_freq") || is_kv_cache_scale(tensor) ||
           is_float8_attention_scale(tensor);
  });
  return parameters;
}

std::vector<MemoryItem> EagleHead::memory() {
  DecoderMemory memory;
  for (const auto& layer : layers_) layer->add_memory(memory);
  add_matrices(first_.attention, memory.attention);
  add_matrices(first_.mlp, memory.mlp);
  memory.norms.bytes += parameter_bytes(first_.post_attention_norm) + parameter_bytes(final_norm_);
  for (auto* norm : {&first_.input_norm, &first_.hidden_norm}) {
    if (*norm) memory.norms.bytes += parameter_bytes(**norm);
  }
  std::vector<MemoryItem> items = {
      memory.attention,
      memory.mlp,
      memory.norms,
      {"fc", parameter_bytes(fc_), {describe(fc_.product("fc"))}},
      {"rotary table", rotary_.bytes(), {std::string(name_of(DType::kFloat32))}}};
  const std::pair<const char*, std::optional<VocabTable>*> tables[] = {
      {"embedding", &own_embedding_}, {"output layer", &own_output_}};
  for (const auto& [name, table] : tables) {
    if (*table)
      items.push_back({name, parameter_bytes(**table), {describe((*table)->product(""))}});
  }
  return items;
}

KvCacheShape EagleHead::kv_cache_shape() const {
  return {.num_layers = config_.num_hidden_layers,
          .num_kv_heads = first_.attention.num_kv_heads(),
          .head_dim = first_.attention.head_dim()};
}

std::vector<MatrixProduct> EagleHead::products() const {
  std::vector<MatrixProduct> products = {fc_.product("fc")};
  first_.attention.add_products(products);
  first_.mlp.add_products(products);
  for (const auto& layer : layers_) layer->add_products(products);
  if (own_output_) products.push_back(own_output_->product("lm_head"));
  return products;
}

void EagleHead::bind_cache(Stream&, Communicator&, std::span<const KvCacheView> kv_caches) {
  check(std::ssize(kv_caches) == config_.num_hidden_layers,
        "each layer has its part of the KV cache");
  kv_caches_ = kv_caches;
}

void EagleHead::project(ForwardContext& context, const Tensor& states, const Tensor& out) const {
  fc_.forward(context, states, out);
}

Tensor EagleHead::join(ForwardContext& context, const Tensor& token, const Tensor& residual,
                       const Tensor& both) const {
  const int64_t width = config_.hidden_size;
  const Tensor left = both.columns(0, width);
  const Tensor right = both.columns(width, 2 * width);
  if (projects()) {
    first_.input_norm->forward(context, token, left);
    first_.hidden_norm->forward(context, residual, right);
    if (eagle_.norm_before_residual) first_.hidden_norm->forward(context, residual, residual);
    return both;
  }
  if (row_ids_.defined()) {
    const Tensor rows = row_ids_.rows(0, context.batch.num_tokens);
    ops::gather_rows(context.stream, token, rows, left);
    ops::gather_rows(context.stream, residual, rows, right);
  }
  fc_.forward(context, both, residual);
  return residual;
}

void EagleHead::run_first_layer(ForwardContext& context, const IntermediateTensors& state) const {
  const auto& [hidden, residual] = state;
  const Arena::Scope scope(context.arena);
  const int64_t width = config_.hidden_size;
  const Tensor token = context.arena.allocate(context.dtype, {context.batch.num_tokens, width});
  const Tensor both = context.arena.allocate(context.dtype, {context.batch.num_tokens, 2 * width});
  const VocabTable* table = own_embedding_ ? &*own_embedding_ : shared_.embedding;
  // Where a head is only counted there is no target, and so no table.
  if (table != nullptr) embed_tokens(context, *table, token);
  const Tensor input = join(context, token, residual, both);
  first_.attention.forward(context, rotary_.cos_sin(), kv_caches_.front(), input, hidden);
  first_.post_attention_norm.forward_add(context, hidden, residual, hidden);
  first_.mlp.forward(context, hidden, hidden);
}

IntermediateTensors EagleHead::forward(ForwardContext& context,
                                       std::optional<IntermediateTensors> previous) {
  check(previous.has_value(), "a head is told what is known of its rows");
  check(std::ssize(kv_caches_) == config_.num_hidden_layers, "the head knows its KV cache");
  const IntermediateTensors state = *previous;
  run_first_layer(context, state);
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->forward(context, rotary_.cos_sin(), kv_caches_[i + 1], static_cast<int64_t>(i) + 1,
                        state);
  }
  final_norm_.forward_add(context, state.hidden, state.residual, state.hidden);
  return {.hidden = projects() ? state.hidden : state.residual, .residual = state.residual};
}

Tensor EagleHead::compute_logits(ForwardContext& context, const Tensor& hidden) {
  const VocabTable* table = own_output_ ? &*own_output_ : shared_.output;
  if (table == nullptr) {  // only counted: as large as the target's
    return context.arena.allocate(DType::kFloat32,
                                  {context.batch.logits_rows.dim(0), eagle_.draft_vocab_size});
  }
  return compute_vocab_logits(context, *table, hidden);
}

}  // namespace quire
