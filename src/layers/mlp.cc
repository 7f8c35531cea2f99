#include "layers/mlp.h"

#include <algorithm>
#include <array>

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
      gate_up_proj_(gate_up_shard(config, place.at), place, config.gate_up_format),
      down_proj_(down_shard(config, place.at), place, config.down_format) {}

void Mlp::add_parameters(const std::string& name, ParameterMap& parameters) {
  gate_up_proj_.add_parameters(name + ".gate_up_proj", parameters);
  down_proj_.add_parameters(name + ".down_proj", parameters);
}

void Mlp::add_lora_sites(const std::string& name, LoraSites& sites) const {
  gate_up_proj_.add_lora_sites(name + ".gate_up_proj", sites);
  down_proj_.add_lora_sites(name + ".down_proj", sites);
}

void Mlp::add_products(std::vector<MatrixProduct>& products) const {
  products.push_back(gate_up_proj_.product("gate_up_proj"));
  products.back().is_gated = true;
  products.push_back(down_proj_.product("down_proj"));
}

bool Mlp::describe(ops::DecoderStepLayer& layer, const GpuLora* adapters) const {
  layer.gate_up = &gate_up_proj_.weight();
  layer.gate_up_bias = gate_up_proj_.added_bias();
  layer.down = &down_proj_.weight();
  layer.down_bias = down_proj_.added_bias();
  if (adapters != nullptr) {
    layer.slots[ops::kGateUpMatrix] = adapters->find(&gate_up_proj_);
    layer.slots[ops::kDownMatrix] = adapters->find(&down_proj_);
  }
  return true;
}

LinearInput Mlp::input(ForwardContext& context, const Tensor& x) const {
  if (x.dim(0) > max_rows(context.stream.device())) return x;
  return gate_up_proj_.input(context, x, true);
}

void Mlp::forward(ForwardContext& context, const LinearInput& in, const Tensor& out) const {
  const int64_t step = max_rows(context.stream.device());
  const int64_t num_rows = in.x.dim(0);
  if (num_rows <= step) return forward_rows(context, in, out, 0);
  for (int64_t begin = 0; begin < num_rows; begin += step) {
    const int64_t end = std::min(num_rows, begin + step);
    forward_rows(context, in.x.rows(begin, end), out.rows(begin, end), begin);
  }
}

void Mlp::forward_rows(ForwardContext& context, const LinearInput& in, const Tensor& out,
                       int64_t first_row) const {
  Arena::Scope scope(context.arena);
  const Tensor activations = context.arena.allocate(context.dtype, {in.x.dim(0), inner_features_});
  LinearInput inner = down_proj_.input(context, activations);
  gate_up_proj_.forward_gated(context, in, inner, first_row);
  down_proj_.forward(context, inner, out, first_row);
}

}  // namespace quire
