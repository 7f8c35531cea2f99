#include "layers/linear.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ops/activation.h"
#include "ops/linear.h"

namespace quire {

Linear::Linear(const LinearShard& shard, const Placement& place, const MatrixFormat& format)
    : parts_(shard.weight_parts),
      weight_(place, format, shard.n, shard.k, shard.weight_parts),
      is_partial_sum_(shard.partial_sum),
      may_add_bias_(!shard.partial_sum || place.at.rank == 0),
      adds_bias_(shard.bias && may_add_bias_) {
  if (shard.bias) bias_.emplace(place, "bias", shard.n, DummyInit::kUniform, shard.bias_parts);
}

namespace {

// Scratch of the arena for a product of `rows` rows; undefined where it needs none.
Tensor scratch_of(ForwardContext& context, const ops::Weight& weight, int64_t rows) {
  const int64_t bytes = ops::linear_scratch(context.stream, weight, rows);
  return bytes == 0 ? Tensor() : context.arena.allocate(DType::kUInt8, {bytes});
}

}  // namespace

void Linear::add_parameters(const std::string& name, ParameterMap& parameters) {
  parameters.add(name, weight_);
  if (bias_) parameters.add(name, *bias_);
}

void Linear::add_lora_sites(const std::string& name, LoraSites& sites) const {
  sites.add(name, {.layer = this,
                   .n = weight_.weight().n(),
                   .k = weight_.weight().k(),
                   .parts = parts_,
                   .adds_bias = may_add_bias_});
}

void Linear::forward_adapted(ForwardContext& context, const Tensor& in, const Tensor& out,
                             int64_t first_row) const {
  ops::linear(context.stream, in, weight_.weight(), added_bias(), out);
  context.lora->add(context.stream, this, first_row, in, added_bias(), out);
}

const ops::LoraSlotLayer* Linear::slots_of(const ForwardContext& context) const {
  return context.gpu_lora == nullptr ? nullptr : context.gpu_lora->find(this);
}

// The base's product comes between the adapters' two: its kernel fetches weights while the first
// runs, and the last fetches its matrices while the base's runs.
void Linear::forward_in_slots(ForwardContext& context, const ops::LoraSlotLayer& slots,
                              const Tensor& in, const Tensor& out, int64_t first_row) const {
  context.gpu_lora->shrink(context.stream, slots, first_row, in);
  Arena::Scope scope(context.arena);
  const Tensor scratch = scratch_of(context, weight_.weight(), in.dim(0));
  ops::linear(context.stream, in, weight_.weight(), added_bias(), out, scratch);
  context.gpu_lora->multiply_copies(context.stream, this, first_row, in, added_bias(), out);
  context.gpu_lora->expand(context.stream, slots, first_row, added_bias(), out);
}

void Linear::forward_gated_in_slots(ForwardContext& context, const ops::LoraSlotLayer& slots,
                                    const Tensor& in, const Tensor& out, int64_t first_row) const {
  for (int64_t begin = 0; begin < in.dim(0); begin += GpuLora::kMostGatedRows) {
    const int64_t end = std::min(in.dim(0), begin + GpuLora::kMostGatedRows);
    const Tensor rows = in.rows(begin, end);
    const Tensor gate_up = context.gpu_lora->gate_up(end - begin, weight_.weight().n());
    context.gpu_lora->shrink(context.stream, slots, first_row + begin, rows);
    Arena::Scope scope(context.arena);
    const Tensor scratch = scratch_of(context, weight_.weight(), end - begin);
    ops::linear(context.stream, rows, weight_.weight(), added_bias(), gate_up, scratch);
    context.gpu_lora->multiply_copies(context.stream, this, first_row + begin, rows, added_bias(),
                                      gate_up);
    context.gpu_lora->expand_gated(context.stream, slots, first_row + begin, added_bias(), gate_up,
                                   out.rows(begin, end));
  }
}

void Linear::forward(ForwardContext& context, const Tensor& in, const Tensor& out,
                     int64_t first_row) const {
  if (context.observer != nullptr) context.observer->observe(weight_.weight(), in);
  if (context.lora != nullptr) return forward_adapted(context, in, out, first_row);
  if (const auto* slots = slots_of(context)) {
    return forward_in_slots(context, *slots, in, out, first_row);
  }
  Arena::Scope scope(context.arena);
  const Tensor scratch = scratch_of(context, weight_.weight(), in.dim(0));
  ops::linear(context.stream, in, weight_.weight(), added_bias(), out, scratch);
}

void Linear::forward_gated(ForwardContext& context, const Tensor& in, const Tensor& out,
                           int64_t first_row) const {
  check(!is_partial_sum_, "a gated layer's outputs are this rank's own");
  if (context.observer != nullptr) context.observer->observe(weight_.weight(), in);
  if (const auto* slots = slots_of(context)) {
    return forward_gated_in_slots(context, *slots, in, out, first_row);
  }
  Arena::Scope scope(context.arena);
  Tensor gate_up;
  if (context.stream.is_cpu()) {
    gate_up = context.arena.allocate(DType::kFloat32, {in.dim(0), weight_.weight().n()});
  }
  if (context.lora != nullptr) {
    forward_adapted(context, in, gate_up, first_row);
    return ops::silu_and_mul(context.stream, gate_up, out);
  }
  const Tensor scratch = scratch_of(context, weight_.weight(), in.dim(0));
  ops::gated_linear(context.stream, in, weight_.weight(), added_bias(), gate_up, out, scratch);
}

MatrixProduct Linear::product(std::string name) const {
  return {.name = std::move(name),
          .n = weight_.weight().n(),
          .k = weight_.weight().k(),
          .format = weight_.weight().format(),
          .stored_as = weight_.stored_as(),
          .has_bias = bias_.has_value(),
          .device = weight_.weight().device()};
}

}  // namespace quire
