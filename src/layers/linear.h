#pragma once
// A linear layer: this rank's share of out = in * W^T + bias. If the shard says so, the outputs are
// one term of a sum over the ranks, and the caller adds the terms.
//
// Thread safety: forward is called by the rank's worker.
#include <optional>
#include <string>
#include <vector>

#include "layers/forward_context.h"
#include "layers/linear_input.h"
#include "layers/parameters.h"
#include "layers/placement.h"
#include "layers/sharding.h"

namespace quire {

// One rank's matrix product: out[T, n] = in[T, k] * weight[n, k]^T, and a bias with has_bias; with
// is_gated, forward_gated's.
struct MatrixProduct {
  std::string name;  // "qkv_proj"
  int64_t n = 0;
  int64_t k = 0;
  ops::WeightFormat format = {};
  std::string stored_as = {};  // MatrixParameter's
  bool has_bias = false;
  bool is_gated = false;
  bool is_logits = false;  // only for rows whose logits are wanted; out is float32
  DeviceType device = DeviceType::kCpu;
};

class Linear {
 public:
  Linear(const LinearShard& shard, const Placement& place, const MatrixFormat& format = {});

  // Adds the tensors of the weight and of the bias as "<name>.<leaf>".
  void add_parameters(const std::string& name, ParameterMap& parameters);

  // Lets adapters add to the layer.
  void add_lora_sites(const std::string& name, LoraSites& sites) const;

  // The input of forward(), or of forward_gated(), that another layer will make at x [T, shard.k].
  // What it takes of the arena is in use until the product is computed.
  LinearInput input(ForwardContext& context, const Tensor& x, bool is_gated = false) const;
  // in [T, shard.k], out [T, shard.n]: rows of the batch from first_row on.
  void forward(ForwardContext& context, const LinearInput& in, const Tensor& out,
               int64_t first_row = 0) const;
  // out [T, shard.n / 2] = silu(first half of the outputs) * second half. Only where the outputs
  // are not one term of a sum.
  void forward_gated(ForwardContext& context, const LinearInput& in, LinearInput& out,
                     int64_t first_row = 0) const;
  const ops::Weight& weight() const { return weight_.weight(); }
  // float32[shard.n]; undefined where there is none, or another rank adds it.
  Tensor added_bias() const { return adds_bias_ ? bias_->tensor() : Tensor(); }
  // The product of forward().
  MatrixProduct product(std::string name) const;

 private:
  // The layer's outputs [T, shard.n] with what adapters add to them, on the CPU.
  void forward_adapted(ForwardContext& context, const Tensor& in, const Tensor& out,
                       int64_t first_row) const;

  // The same on a GPU. Scratch is the arena's.
  void forward_in_slots(ForwardContext& context, const ops::LoraSlotLayer& slots,
                        const LinearInput& in, const Tensor& out, int64_t first_row) const;
  void forward_gated_in_slots(ForwardContext& context, const ops::LoraSlotLayer& slots,
                              const LinearInput& in, const Tensor& out, int64_t first_row) const;
  // What slots add to this layer; null where no row has an adapter, or none adds anything here.
  const ops::LoraSlotLayer* slots_of(const ForwardContext& context) const;

  std::vector<ParameterPart> parts_;
  MatrixParameter weight_;
  std::optional<VectorParameter> bias_;
  bool is_partial_sum_ = false;
  bool may_add_bias_ = false;  // in a sum over the ranks only rank 0 adds biases
  bool adds_bias_ = false;     // of the base
};

}  // namespace quire
