#pragma once
// The gated MLP of a decoder layer: down(silu(gate(x)) * up(x)). Its inner features are split over
// the ranks.
//
// Parameters: gate_up_proj, down_proj.
// Thread safety: forward is called by the rank's worker.
#include <string>
#include <vector>

#include "layers/forward_context.h"
#include "layers/linear.h"
#include "layers/placement.h"
#include "ops/decoder_step.h"

namespace quire {

struct MlpConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  bool bias = false;
  MatrixFormat gate_up_format = {};
  MatrixFormat down_format = {};
};

class Mlp {
 public:
  Mlp(const MlpConfig& config, const Placement& place);

  // "<name>.gate_up_proj.weight" and so on.
  void add_parameters(const std::string& name, ParameterMap& parameters);
  void add_lora_sites(const std::string& name, LoraSites& sites) const;

  // The products of one forward().
  void add_products(std::vector<MatrixProduct>& products) const;
  // Adds this layer to the description of a kernel for a whole step (ops/decoder_step.h). False
  // where such a kernel cannot replace the layer. `adapters`: what its steps may have; may be null.
  bool describe(ops::DecoderStepLayer& layer, const GpuLora* adapters) const;

  // The input of forward() that another layer will make at x (Linear::input).
  LinearInput input(ForwardContext& context, const Tensor& x) const;
  // in, out [T, hidden_size]; out may be in, and is this rank's part of a sum over the ranks.
  void forward(ForwardContext& context, const LinearInput& in, const Tensor& out) const;

 private:
  // Rows of the batch from first_row on, all at once.
  void forward_rows(ForwardContext& context, const LinearInput& in, const Tensor& out,
                    int64_t first_row) const;

  int64_t inner_features_;  // of this rank
  Linear gate_up_proj_;
  Linear down_proj_;
};

}  // namespace quire
