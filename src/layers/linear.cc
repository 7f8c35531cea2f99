#include "layers/linear.h"

#include "ops/linear.h"

namespace quire {

Linear::Linear(const LinearShard& shard, DType dtype, ParallelRank at)
    : weight_(dtype, shard.n, shard.k, shard.weight_parts),
      all_reduce_(shard.partial_sum),
      adds_bias_(shard.bias && (!shard.partial_sum || at.rank == 0)) {
  if (shard.bias) bias_.emplace(shard.n, DummyInit::kUniform, shard.bias_parts);
}

size_t Linear::weight_bytes(const LinearShard& shard, DType dtype) {
  return ops::Weight::bytes(dtype, shard.n, shard.k) +
         (shard.bias ? VectorParameter::bytes(shard.n) : 0);
}

void Linear::add_parameters(const std::string& name, ParameterMap& parameters) {
  parameters.add(name + ".weight", weight_);
  if (bias_) parameters.add(name + ".bias", *bias_);
}

void Linear::forward(ForwardContext& context, const Tensor& in, const Tensor& out) const {
  ops::linear(context.stream, in, weight_.weight(), adds_bias_ ? bias_->tensor() : Tensor(), out);
  if (all_reduce_) context.comm.all_reduce_sum(context.stream, out);
}

}  // namespace quire
