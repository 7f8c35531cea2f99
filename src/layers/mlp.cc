#include "layers/mlp.h"

#include <algorithm>
#include <array>

#include "layers/activations.h"
#include "ops/activation.h"

namespace quire {
namespace {

// Tokens that go through the MLP together. Its inner activations are the widest of the model, so a
// long prefill would need more memory for them than for all the rest; in groups of this size the
// weights, read once a group, still cost far less than the arithmetic (some 2,000 products for each
// weight read). Rows don't depend on each other, so the result is the same.
constexpr int64_t kMaxRows = 2048;

LinearShard gate_up_shard(const MlpConfig& c, ParallelRank at) {
  return column_parallel_linear(std::array{c.intermediate_size, c.intermediate_size}, c.hidden_size,
                                c.bias, at);
}

LinearShard down_shard(const MlpConfig& c, ParallelRank at) {
  return row_parallel_linear(c.hidden_size, c.intermediate_size, c.bias, at);
}

}  // namespace

Mlp::Mlp(const MlpConfig& config, DType dtype, ParallelRank at)
    : inner_features_(config.intermediate_size / at.size),
      gate_up_proj_(gate_up_shard(config, at), dtype, at),
      down_proj_(down_shard(config, at), dtype, at) {}

size_t Mlp::weight_bytes(const MlpConfig& config, DType dtype, ParallelRank at) {
  return Linear::weight_bytes(gate_up_shard(config, at), dtype) +
         Linear::weight_bytes(down_shard(config, at), dtype);
}

size_t Mlp::arena_bytes(const MlpConfig& config, int size, int64_t num_tokens) {
  const int64_t rows = std::min(num_tokens, kMaxRows);
  const int64_t inner = config.intermediate_size / size;
  return activation_bytes(rows, 2 * inner) + activation_bytes(rows, inner);
}

void Mlp::add_parameters(const std::string& name, ParameterMap& parameters) {
  gate_up_proj_.add_parameters(name + ".gate_up_proj", parameters);
  down_proj_.add_parameters(name + ".down_proj", parameters);
}

void Mlp::forward(ForwardContext& context, const Tensor& in, const Tensor& out) const {
  for (int64_t begin = 0; begin < in.dim(0); begin += kMaxRows) {
    const int64_t end = std::min(in.dim(0), begin + kMaxRows);
    Arena::Scope scope(context.arena);
    const Tensor gate_up =
        context.arena.allocate(DType::kFloat32, {end - begin, 2 * inner_features_});
    const Tensor inner = context.arena.allocate(DType::kFloat32, {end - begin, inner_features_});
    gate_up_proj_.forward(context, in.rows(begin, end), gate_up);
    ops::silu_and_mul(context.stream, gate_up, inner);
    down_proj_.forward(context, inner, out.rows(begin, end));
  }
}

}  // namespace quire
