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

// The input's, or as above.
Tensor scratch_of(ForwardContext& context, const ops::Weight& weight, const LinearInput& in,
                  int64_t rows) {
  return in.scratch.defined() ? in.scratch : scratch_of(context, weight, rows);
}

// Whether others than the product read a layer's input.
bool has_readers(const ForwardContext& context) {
  return context.observer != nullptr || context.lora != nullptr || context.gpu_lora != nullptr;
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

LinearInput Linear::input(ForwardContext& context, const Tensor& x, bool is_gated) const {
  LinearInput input(x);
  const ops::Weight& weight = weight_.weight();
  if (weight.format().kind != ops::WeightKind::kFloat8) return input;
  input.scratch = scratch_of(context, weight, x.dim(0));
  if (has_readers(context) || !input.scratch.defined()) return input;
  input.rounded = ops::rounded_input(context.stream, weight, added_bias(), context.dtype, x.dim(0),
                                     is_gated, input.scratch);
  return input;
}

void Linear::forward_adapted(ForwardContext& context, const Tensor& in, const Tensor& out,
                             int64_t first_row) const {
  ops::linear(context.stream, in, weight_.weight(), added_bias(), out);
  context.lora->add(context.stream, this, first_row, in, added_bias(), out);
}

const ops::LoraSlotLayer* Linear::slots_of(const ForwardContext& context) const {
  return context.gpu_lora == nullptr ? nullptr : context.gpu_lora->find(this);
}

// Where not all is one product, the base's comes between the adapters' two: its kernel fetches
// weights while the first runs, and the last fetches its matrices while the base's runs.
void Linear::forward_in_slots(ForwardContext& context, const ops::LoraSlotLayer& slots,
                              const LinearInput& in, const Tensor& out, int64_t first_row) const {
  if (context.gpu_lora->multiply(context.stream, slots, in.x, weight_.weight(), added_bias(), false,
                                 out)) {
    return;
  }
  context.gpu_lora->shrink(context.stream, slots, first_row, in.x);
  Arena::Scope scope(context.arena);
  const Tensor scratch = scratch_of(context, weight_.weight(), in, in.x.dim(0));
  ops::linear(context.stream, in.x, weight_.weight(), added_bias(), out, scratch);
  context.gpu_lora->multiply_copies(context.stream, this, first_row, in.x, added_bias(), out);
  context.gpu_lora->expand(context.stream, slots, first_row, added_bias(), out);
}

void Linear::forward_gated_in_slots(ForwardContext& context, const ops::LoraSlotLayer& slots,
                                    const LinearInput& in, const Tensor& out,
                                    int64_t first_row) const {
  if (context.gpu_lora->multiply(context.stream, slots, in.x, weight_.weight(), added_bias(), true,
                                 out)) {
    return;
  }
  const int64_t num_rows = in.x.dim(0);
  for (int64_t begin = 0; begin < num_rows; begin += GpuLora::kMostGatedRows) {
    const int64_t end = std::min(num_rows, begin + GpuLora::kMostGatedRows);
    const Tensor rows = in.x.rows(begin, end);
    const Tensor gate_up = context.gpu_lora->gate_up(end - begin, weight_.weight().n());
    context.gpu_lora->shrink(context.stream, slots, first_row + begin, rows);
    Arena::Scope scope(context.arena);
    const Tensor scratch = scratch_of(context, weight_.weight(), in, end - begin);
    ops::linear(context.stream, rows, weight_.weight(), added_bias(), gate_up, scratch);
    context.gpu_lora->multiply_copies(context.stream, this, first_row + begin, rows, added_bias(),
                                      gate_up);
    context.gpu_lora->expand_gated(context.stream, slots, first_row + begin, added_bias(), gate_up,
                                   out.rows(begin, end));
  }
}

void Linear::forward(ForwardContext& context, const LinearInput& in, const Tensor& out,
                     int64_t first_row) const {
  check(in.rounded.data == nullptr || !has_readers(context), "only the product reads the input");
  if (context.observer != nullptr) context.observer->observe(weight_.weight(), in.x);
  if (context.lora != nullptr) return forward_adapted(context, in.x, out, first_row);
  if (const auto* slots = slots_of(context)) {
    return forward_in_slots(context, *slots, in, out, first_row);
  }
  Arena::Scope scope(context.arena);
  const Tensor scratch = scratch_of(context, weight_.weight(), in, in.x.dim(0));
  ops::linear(context.stream, in.x, weight_.weight(), added_bias(), out, scratch, in.rounded);
}

void Linear::forward_gated(ForwardContext& context, const LinearInput& in, LinearInput& out,
                           int64_t first_row) const {
  check(!is_partial_sum_, "a gated layer's outputs are this rank's own");
  check(in.rounded.data == nullptr || !has_readers(context), "only the product reads the input");
  // Kernels of other weights do not round what they give.
  if (weight_.weight().format().kind != ops::WeightKind::kFloat8) out.rounded = {};
  if (context.observer != nullptr) context.observer->observe(weight_.weight(), in.x);
  if (const auto* slots = slots_of(context)) {
    return forward_gated_in_slots(context, *slots, in, out.x, first_row);
  }
  Arena::Scope scope(context.arena);
  Tensor gate_up;
  if (context.stream.is_cpu()) {
    gate_up = context.arena.allocate(DType::kFloat32, {in.x.dim(0), weight_.weight().n()});
  }
  if (context.lora != nullptr) {
    forward_adapted(context, in.x, gate_up, first_row);
    return ops::silu_and_mul(context.stream, gate_up, out.x);
  }
  const Tensor scratch = scratch_of(context, weight_.weight(), in, in.x.dim(0));
  ops::gated_linear(context.stream, in.x, weight_.weight(), added_bias(), gate_up, out.x, scratch,
                    in.rounded, out.rounded);
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
