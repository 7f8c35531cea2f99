#pragma once
// RMSNorm with its weight, whole on every rank.
//
// Thread safety: forward is called by the rank's worker.
#include "layers/forward_context.h"
#include "layers/linear_input.h"
#include "layers/parameters.h"
#include "layers/placement.h"

namespace quire {

class RmsNorm {
 public:
  RmsNorm(const Placement& place, int64_t size, double eps);

  // Adds "<name>.weight".
  void add_parameters(const std::string& name, ParameterMap& parameters);
  // Lets adapters replace this weight by one of their own. `of_heads`: it is not used by forward(),
  // but by attention.
  void add_lora_sites(const std::string& name, LoraSites& sites, bool of_heads = false) const;

  // in, out [T, size]; out may be in.
  void forward(ForwardContext& context, const Tensor& in, const Tensor& out) const;
  // residual += the sum of x over the ranks, then out = norm(residual); out may be x, which is
  // overwritten in any case.
  void forward_add(ForwardContext& context, const Tensor& x, const Tensor& residual,
                   const Tensor& out) const;
  // The same for a linear layer. `out` is no longer rounded where this has no kernel for that.
  void forward(ForwardContext& context, const Tensor& in, LinearInput& out) const;
  void forward_add(ForwardContext& context, const Tensor& x, const Tensor& residual,
                   LinearInput& out) const;

  // float32[size].
  const Tensor& weight() const { return weight_.tensor(); }

 private:
  // Computes the rows of `out` whose adapters have a weight of their own again, from `in`.
  void replace_adapted(ForwardContext& context, const Tensor& in, const Tensor& out) const;

  VectorParameter weight_;
  float eps_;
};

}  // namespace quire
