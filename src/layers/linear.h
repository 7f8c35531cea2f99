#pragma once
// A linear layer: this rank's share of out = in * W^T + bias, summed over the ranks where the shard
// says so.
//
// Thread safety: forward is called by the rank's worker.
#include <cstddef>
#include <optional>
#include <string>

#include "layers/forward_context.h"
#include "layers/parameters.h"
#include "layers/sharding.h"

namespace quire {

class Linear {
 public:
  // Adds "<name>.weight" and "<name>.bias" to `parameters` through add_parameters.
  Linear(const LinearShard& shard, DType dtype, ParallelRank at);

  static size_t weight_bytes(const LinearShard& shard, DType dtype);

  void add_parameters(const std::string& name, ParameterMap& parameters);

  // in float32[T, shard.k], out float32[T, shard.n]; out is contiguous where outputs are summed
  // over ranks.
  void forward(ForwardContext& context, const Tensor& in, const Tensor& out) const;

 private:
  MatrixParameter weight_;
  std::optional<VectorParameter> bias_;
  bool all_reduce_ = false;
  bool adds_bias_ = false;  // of a sum over the ranks, the first alone adds the bias
};

}  // namespace quire
