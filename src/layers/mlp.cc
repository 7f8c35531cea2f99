#include "layers/mlp.h"

#include <algorithm>
#include <array>

#include "layers/activations.h"

namespace quire {
namespace {

// Tokens that go through the MLP together. Its inner activations are the widest of the model, so a
// long prefill would need more memory for them than for all the rest; in groups of this size the
// weights, read once a group, still cost far less than the arithmetic (some 2,000 products for each
// weight read). A GPU needs more rows to be busy with, and has more memory for them. Rows don't
// depend on each other, so the result is the same.
int64_t max_rows(const Device& device) {
  return device.is_cpu() ? 2048 : 16384;
}

LinearShard gate_up_shard(const MlpConfig& c, ParallelRank at) {
  return column_parallel_linear(std::array{c.intermediate_size, c.intermediate_size}, c.hidden_size,
                                c.bias, at);
}

LinearShard down_shard(const MlpConfig& c, ParallelRank at) {
  return row_parallel_linear(c.hidden_size, c.intermediate_size, c.bias, at);
}

}  // namespace

Mlp::Mlp(const MlpConfig& config, const Placement& place)
    : inner_features_(config.intermediate_size / place.at.size),
      gate_up_proj_(gate_up_shard(config, place.at), place),
      down_proj_(down_shard(config, place.at), place) {}

size_t Mlp::weight_bytes(const MlpConfig& config, const Placement& place) {
  return Linear::weight_bytes(gate_up_shard(config, place.at), place) +
         Linear::weight_bytes(down_shard(config, place.at), place);
}

size_t Mlp::arena_bytes(const MlpConfig& config, const Placement& place, int64_t num_tokens) {
  const int64_t rows = std::min(num_tokens, max_rows(place.device));
  return Linear::gated_arena_bytes(gate_up_shard(config, place.at), place, rows) +
         activation_bytes(rows, config.intermediate_size / place.at.size, place.activation_dtype());
}

std::vector<MatrixProduct> Mlp::products(const MlpConfig& config, ParallelRank at) {
  const LinearShard gate_up = gate_up_shard(config, at);
  const LinearShard down = down_shard(config, at);
  return {{.name = "gate_up_proj",
           .n = gate_up.n,
           .k = gate_up.k,
           .has_bias = gate_up.bias,
           .is_gated = true},
          {.name = "down_proj", .n = down.n, .k = down.k, .has_bias = down.bias}};
}

void Mlp::add_parameters(const std::string& name, ParameterMap& parameters) {
  gate_up_proj_.add_parameters(name + ".gate_up_proj", parameters);
  down_proj_.add_parameters(name + ".down_proj", parameters);
}

void Mlp::forward(ForwardContext& context, const Tensor& in, const Tensor& out) const {
  const int64_t step = max_rows(context.stream.device());
  for (int64_t begin = 0; begin < in.dim(0); begin += step) {
    const int64_t end = std::min(in.dim(0), begin + step);
    Arena::Scope scope(context.arena);
    const Tensor inner = context.arena.allocate(context.dtype, {end - begin, inner_features_});
    gate_up_proj_.forward_gated(context, in.rows(begin, end), inner);
    down_proj_.forward(context, inner, out.rows(begin, end));
  }
}

}  // namespace quire
