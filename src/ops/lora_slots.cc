#include "ops/lora_slots.h"

#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

// Whether lora_expand makes t itself.
bool is_in_one(const Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
               const Tensor& x) {
  // A block is launched for each item, also for those of other rows of a large step.
  bool whole = rows.max_items <= 2 * kMostLoraRowsInOne;
  for (int part = 0; part < layer.num_parts; ++part) {
    whole &= layer.first_output[part] % 8 == 0 && layer.num_outputs[part] % 8 == 0;
  }
  return whole && takes_lora_in_one(stream.device().compute_capability, x.dtype(), rows.num_rows,
                                    layer.k, layer.max_ranks);
}

CudaLoraExpand expand_args(const Stream& stream, const CudaLoraRows& rows,
                           const LoraSlotLayer& layer, const Tensor& x, const Tensor& t,
                           const Tensor& bias, const Tensor& out) {
  CudaLoraExpand args = {.dtype = out.dtype(),
                         .rows = rows,
                         .layers = layer.slots,
                         .layer_stride = layer.stride,
                         .t = t.data<float>(),
                         .max_ranks = layer.max_ranks,
                         .splits = lora_splits(rows.num_rows, layer.k),
                         .num_parts = layer.num_parts,
                         .first_output = {},
                         .num_outputs = {},
                         .silu_and_mul = false,
                         .gate_up = nullptr,
                         .gate_up_stride = 0,
                         .bias = bias.defined() ? bias.data<float>() : nullptr,
                         .out = out.raw(),
                         .out_stride = out.row_stride()};
  std::ranges::copy(layer.first_output, args.first_output);
  std::ranges::copy(layer.num_outputs, args.num_outputs);
  if (is_in_one(stream, rows, layer, x)) {
    args.t = nullptr;
    args.x = x.raw();
    args.x_stride = x.row_stride();
    args.k = layer.k;
  }
  return args;
}

// The last output of the layer's parts, and one.
int64_t outputs_of(const LoraSlotLayer& layer) {
  int64_t end = 0;
  for (int part = 0; part < layer.num_parts; ++part) {
    end = std::max(end, layer.first_output[part] + layer.num_outputs[part]);
  }
  return end;
}

}  // namespace

int64_t lora_sums(const LoraSlotLayer& layer, int64_t rows) {
  return lora_splits(rows, layer.k) * rows * layer.max_ranks;
}

void lora_shrink(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                 const Tensor& x, const Tensor& t) {
  Dim r{"R", rows.num_rows}, k{"K", layer.k}, sums{"sums", lora_sums(layer, rows.num_rows)};
  const DType dtype = activation_dtype(stream, x);
  ShapeCheck("lora_shrink")
      .expect("x", x, dtype, {&r, &k})
      .expect("t", t, DType::kFloat32, {&sums})
      .require(!stream.is_cpu(), "adapters in slots are a GPU's");
  if (!stream.computes() || is_in_one(stream, rows, layer, x)) return;
  const CudaLoraShrink args = {.dtype = dtype,
                               .rows = rows,
                               .layers = layer.slots,
                               .layer_stride = layer.stride,
                               .x = x.raw(),
                               .x_stride = x.row_stride(),
                               .k = layer.k,
                               .max_ranks = layer.max_ranks,
                               .splits = lora_splits(rows.num_rows, layer.k),
                               .t = t.data<float>()};
  stream.cuda_kernels().lora_shrink(stream.cuda(), args);
}

void lora_expand(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                 const Tensor& x, const Tensor& t, const Tensor& bias, const Tensor& out) {
  Dim r{"R", rows.num_rows}, n{"N"}, k{"K", layer.k};
  Dim sums{"sums", lora_sums(layer, rows.num_rows)};
  const DType dtype = activation_dtype(stream, out);
  ShapeCheck("lora_expand")
      .expect("out", out, dtype, {&r, &n})
      .expect("x", x, dtype, {&r, &k})
      .expect("t", t, DType::kFloat32, {&sums})
      .expect_optional("bias", bias, DType::kFloat32, {&n})
      .require(n.value >= outputs_of(layer), "the layer's parts are outputs");
  if (!stream.computes()) return;
  stream.cuda_kernels().lora_expand(stream.cuda(),
                                    expand_args(stream, rows, layer, x, t, bias, out));
}

void lora_expand_gated(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                       const Tensor& x, const Tensor& t, const Tensor& bias, const Tensor& gate_up,
                       const Tensor& out) {
  Dim r{"R", rows.num_rows}, i{"I"}, k{"K", layer.k};
  Dim sums{"sums", lora_sums(layer, rows.num_rows)};
  const DType dtype = activation_dtype(stream, out);
  ShapeCheck check("lora_expand_gated");
  check.expect("out", out, dtype, {&r, &i});
  Dim both{"2I", 2 * i.value};
  check.expect("gate_up", gate_up, dtype, {&r, &both})
      .expect("x", x, dtype, {&r, &k})
      .expect("t", t, DType::kFloat32, {&sums})
      .expect_optional("bias", bias, DType::kFloat32, {&both})
      .require(layer.num_parts == 2 && layer.num_outputs[0] == i.value &&
                   layer.num_outputs[1] == i.value,
               "the layer's parts are gate and up");
  if (!stream.computes()) return;
  CudaLoraExpand args = expand_args(stream, rows, layer, x, t, bias, out);
  args.silu_and_mul = true;
  args.gate_up = gate_up.raw();
  args.gate_up_stride = gate_up.row_stride();
  stream.cuda_kernels().lora_expand(stream.cuda(), args);
}

}  // namespace quire::ops
