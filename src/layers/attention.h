#pragma once
// Self-attention of a decoder layer: fused q, k, v projection, per-head norm (optional), rotary
// embedding, attention over the paged cache, output projection. Heads are split over the ranks.
//
// Parameters: qkv_proj, o_proj, and q_norm and k_norm where there is a per-head norm.
// Thread safety: forward is called by the rank's worker.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "layers/forward_context.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/placement.h"
#include "ops/decoder_step.h"

namespace quire {

struct AttentionConfig {
  int64_t hidden_size = 0;
  int64_t num_heads = 0;     // of the whole model
  int64_t num_kv_heads = 0;  // of the whole model
  int64_t head_dim = 0;
  int64_t sliding_window = 0;  // tokens a query sees; 0: all before it
  double norm_eps = 1e-6;
  bool qkv_bias = false;
  bool o_bias = false;
  bool qk_norm = false;
};

class Attention {
 public:
  Attention(const AttentionConfig& config, const Placement& place);

  static size_t weight_bytes(const AttentionConfig& config, const Placement& place);
  // What forward takes from the arena at its peak.
  static size_t arena_bytes(const AttentionConfig& config, const Placement& place,
                            int64_t num_tokens);

  static std::vector<MatrixProduct> products(const AttentionConfig& config, ParallelRank at);

  // "<name>.qkv_proj.weight" and so on.
  void add_parameters(const std::string& name, ParameterMap& parameters);

  // What a kernel of a whole step needs to know (ops/decoder_step.h): weights and the window.
  void describe(ops::DecoderStepLayer& layer) const;
  int num_heads() const { return num_heads_; }
  float scale() const { return scale_; }

  // in, out [T, hidden_size]; out may be in, and is this rank's part of a sum over the ranks.
  // cos_sin: RotaryTable's.
  void forward(ForwardContext& context, const Tensor& cos_sin, const KvCacheView& cache,
               const Tensor& in, const Tensor& out) const;

 private:
  int num_heads_;  // of this rank
  int64_t head_dim_;
  int64_t qkv_features_;  // of this rank
  int64_t sliding_window_;
  float scale_;
  float norm_eps_;
  Linear qkv_proj_;
  Linear o_proj_;
  std::optional<RmsNorm> q_norm_;
  std::optional<RmsNorm> k_norm_;
};

}  // namespace quire
