#pragma once
// The gated MLP of a decoder layer: down(silu(gate(x)) * up(x)). Its inner features are split over
// the ranks.
//
// Parameters: gate_up_proj, down_proj.
// Thread safety: forward is called by the rank's worker.
#include <cstddef>
#include <string>
#include <vector>

#include "layers/forward_context.h"
#include "layers/linear.h"
#include "layers/placement.h"

namespace quire {

struct MlpConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  bool bias = false;
};

class Mlp {
 public:
  Mlp(const MlpConfig& config, const Placement& place);

  static size_t weight_bytes(const MlpConfig& config, const Placement& place);
  // What forward takes from the arena at its peak.
  static size_t arena_bytes(const MlpConfig& config, const Placement& place, int64_t num_tokens);

  static std::vector<MatrixProduct> products(const MlpConfig& config, ParallelRank at);

  // "<name>.gate_up_proj.weight" and so on.
  void add_parameters(const std::string& name, ParameterMap& parameters);

  const Linear& gate_up_proj() const { return gate_up_proj_; }
  const Linear& down_proj() const { return down_proj_; }

  // in, out [T, hidden_size]; out may be in, and is this rank's part of a sum over the ranks.
  void forward(ForwardContext& context, const Tensor& in, const Tensor& out) const;

 private:
  int64_t inner_features_;  // of this rank
  Linear gate_up_proj_;
  Linear down_proj_;
};

}  // namespace quire
