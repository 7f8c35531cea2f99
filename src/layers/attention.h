#pragma once
// Self-attention of a decoder layer: fused q, k, v projection, per-head norm (optional), rotary
// embedding, attention over the paged cache, output projection. Heads are split over the ranks.
//
// Parameters: qkv_proj, o_proj, q_norm and k_norm where there is a per-head norm, and the scales of
// the KV cache where the placement says so.
// Thread safety: forward is called by the rank's worker.
#include <optional>
#include <string>
#include <vector>

#include "layers/forward_context.h"
#include "layers/kv_scales.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/placement.h"
#include "ops/decoder_step.h"

namespace quire {

struct AttentionConfig {
  int64_t hidden_size = 0;
  int64_t input_size = 0;    // of q, k and v; 0: hidden_size
  int64_t num_heads = 0;     // of the whole model
  int64_t num_kv_heads = 0;  // of the whole model
  int64_t head_dim = 0;
  int64_t sliding_window = 0;  // tokens a query sees; 0: all before it
  double norm_eps = 1e-6;
  bool qkv_bias = false;
  bool o_bias = false;
  bool qk_norm = false;
  MatrixFormat qkv_format = {};
  MatrixFormat o_format = {};
};

class Attention {
 public:
  Attention(const AttentionConfig& config, const Placement& place);

  // "<name>.qkv_proj.weight" and so on.
  void add_parameters(const std::string& name, ParameterMap& parameters);
  void add_lora_sites(const std::string& name, LoraSites& sites) const;

  // The products of one forward().
  void add_products(std::vector<MatrixProduct>& products) const;
  // Adds this layer to the description of a kernel for a whole step (ops/decoder_step.h). False
  // where such a kernel cannot replace the layer. `adapters`: what its steps may have; may be null.
  bool describe(ops::DecoderStepLayer& layer, const GpuLora* adapters) const;

  // Of this rank.
  int num_heads() const { return num_heads_; }
  int num_kv_heads() const { return num_kv_heads_; }
  int head_dim() const { return static_cast<int>(head_dim_); }
  float scale() const { return scale_; }

  // The input of forward() that another layer will make at x (Linear::input).
  LinearInput input(ForwardContext& context, const Tensor& x) const;
  // in [T, input_size], out [T, hidden_size]; out may be in, and is this rank's part of a sum over
  // the ranks. cos_sin: RotaryTable's.
  void forward(ForwardContext& context, const Tensor& cos_sin, const KvCacheView& kv_cache,
               const LinearInput& in, const Tensor& out) const;

 private:
  int num_heads_;     // of this rank
  int num_kv_heads_;  // of this rank
  int64_t head_dim_;
  int64_t qkv_features_;  // of this rank
  int64_t sliding_window_;
  float scale_;
  float norm_eps_;
  Linear qkv_proj_;
  Linear o_proj_;
  std::optional<RmsNorm> q_norm_;
  std::optional<RmsNorm> k_norm_;
  std::optional<KvScales> kv_scales_;
};

}  // namespace quire
