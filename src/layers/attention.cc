#include "layers/attention.h"

#include <cmath>
#include <optional>
#include <vector>

#include "ops/attention.h"

namespace quire {
namespace {

LinearShard qkv_shard(const AttentionConfig& c, ParallelRank at) {
  const int64_t inputs = c.input_size == 0 ? c.hidden_size : c.input_size;
  return qkv_linear(inputs, c.num_heads, c.num_kv_heads, c.head_dim, c.qkv_bias, at);
}

LinearShard o_shard(const AttentionConfig& c, ParallelRank at) {
  return row_parallel_linear(c.hidden_size, c.num_heads * c.head_dim, c.o_bias, at);
}

// The norm's weight for each row, where an adapter of the step has one of its own; else empty.
std::vector<const float*> adapted_norms(const ForwardContext& context,
                                        const std::optional<RmsNorm>& norm) {
  if (context.lora == nullptr || !norm) return {};
  return context.lora->norms_of_rows(&*norm, norm->weight());
}

}  // namespace

Attention::Attention(const AttentionConfig& config, const Placement& place)
    : num_heads_(static_cast<int>(config.num_heads / place.at.size)),
      num_kv_heads_(static_cast<int>(kv_heads_of_rank(config.num_kv_heads, place.at.size))),
      head_dim_(config.head_dim),
      qkv_features_(qkv_shard(config, place.at).n),
      sliding_window_(config.sliding_window),
      scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))),
      norm_eps_(static_cast<float>(config.norm_eps)),
      qkv_proj_(qkv_shard(config, place.at), place, config.qkv_format),
      o_proj_(o_shard(config, place.at), place, config.o_format) {
  if (config.qk_norm) {
    q_norm_.emplace(place, config.head_dim, config.norm_eps);
    k_norm_.emplace(place, config.head_dim, config.norm_eps);
  }
  if (place.has_kv_scales) kv_scales_.emplace(place, config.num_kv_heads);
}

void Attention::add_parameters(const std::string& name, ParameterMap& parameters) {
  qkv_proj_.add_parameters(name + ".qkv_proj", parameters);
  o_proj_.add_parameters(name + ".o_proj", parameters);
  if (q_norm_) q_norm_->add_parameters(name + ".q_norm", parameters);
  if (k_norm_) k_norm_->add_parameters(name + ".k_norm", parameters);
  if (kv_scales_) parameters.add(name, *kv_scales_);
}

void Attention::add_lora_sites(const std::string& name, LoraSites& sites) const {
  qkv_proj_.add_lora_sites(name + ".qkv_proj", sites);
  o_proj_.add_lora_sites(name + ".o_proj", sites);
  constexpr bool kOfHeads = true;
  if (q_norm_) q_norm_->add_lora_sites(name + ".q_norm", sites, kOfHeads);
  if (k_norm_) k_norm_->add_lora_sites(name + ".k_norm", sites, kOfHeads);
}

void Attention::add_products(std::vector<MatrixProduct>& products) const {
  products.push_back(qkv_proj_.product("qkv_proj"));
  products.push_back(o_proj_.product("o_proj"));
}

bool Attention::describe(ops::DecoderStepLayer& layer, const GpuLora* adapters) const {
  layer.qkv = &qkv_proj_.weight();
  layer.qkv_bias = qkv_proj_.added_bias();
  if (q_norm_) layer.q_norm = q_norm_->weight();
  if (k_norm_) layer.k_norm = k_norm_->weight();
  layer.o = &o_proj_.weight();
  layer.o_bias = o_proj_.added_bias();
  layer.sliding_window = sliding_window_;
  if (adapters != nullptr) {
    layer.slots[ops::kQkvMatrix] = adapters->find(&qkv_proj_);
    layer.slots[ops::kOutputMatrix] = adapters->find(&o_proj_);
  }
  return true;
}

LinearInput Attention::input(ForwardContext& context, const Tensor& x) const {
  return qkv_proj_.input(context, x);
}

void Attention::forward(ForwardContext& context, const Tensor& cos_sin, const KvCacheView& kv_cache,
                        const LinearInput& in, const Tensor& out) const {
  const KvCacheView cache = kv_scales_ ? kv_scales_->applied_to(kv_cache) : kv_cache;
  Arena::Scope scope(context.arena);
  const int64_t num_tokens = in.x.dim(0);
  const int64_t q_features = num_heads_ * head_dim_;
  const Tensor qkv = context.arena.allocate(context.dtype, {num_tokens, qkv_features_});
  const Tensor attended = context.arena.allocate(context.dtype, {num_tokens, q_features});
  qkv_proj_.forward(context, in, qkv);
  const std::vector<const float*> q_norms = adapted_norms(context, q_norm_);
  const std::vector<const float*> k_norms = adapted_norms(context, k_norm_);
  const ops::QkNormRope norm_rope{.q_norm = q_norm_ ? q_norm_->weight() : Tensor(),
                                  .k_norm = k_norm_ ? k_norm_->weight() : Tensor(),
                                  .q_norms_of_rows = q_norms,
                                  .k_norms_of_rows = k_norms,
                                  .eps = norm_eps_,
                                  .cos_sin = cos_sin};
  if (context.gpu_lora != nullptr) {
    context.gpu_lora->norm_rope_cache(context.stream, q_norm_ ? &*q_norm_ : nullptr,
                                      k_norm_ ? &*k_norm_ : nullptr, qkv, num_heads_, norm_rope,
                                      context.batch, cache);
  } else {
    ops::qk_norm_rope_cache(context.stream, qkv, num_heads_, norm_rope, context.batch, cache);
  }
  ops::paged_attention(context.stream, qkv.columns(0, q_features), num_heads_, scale_,
                       sliding_window_, context.batch, cache, attended);
  o_proj_.forward(context, attended, out);
}

}  // namespace quire
