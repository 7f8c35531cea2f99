#include "ops/lora_slots.h"

#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

// Whether the layer's kernels use tensor cores.
bool takes_pairs(const LoraSlotLayer& layer, DType dtype) {
  bool whole = true;
  for (int part = 0; part < layer.num_parts; ++part) {
    whole &= layer.first_output[part] % 8 == 0 && layer.num_outputs[part] % 8 == 0;
  }
  return whole && takes_lora_pairs(dtype, layer.k);
}

CudaLoraExpand expand_args(const CudaLoraRows& rows, const LoraSlotLayer& layer, const Tensor& t,
                           const Tensor& bias, const Tensor& out, LoraBranch& branch) {
  CudaLoraExpand args = {.dtype = out.dtype(),
                         .rows = rows,
                         .layers = layer.slots,
                         .layer_stride = layer.stride,
                         .t = t.raw(),
                         .max_ranks = layer.max_ranks,
                         .splits = lora_splits(rows.num_rows, layer.k),
                         .pairs = takes_pairs(layer, out.dtype()),
                         .num_parts = layer.num_parts,
                         .first_output = {},
                         .num_outputs = {},
                         .silu_and_mul = false,
                         .gate_up = nullptr,
                         .gate_up_stride = 0,
                         .bias = bias.defined() ? bias.data<float>() : nullptr,
                         .out = out.raw(),
                         .out_stride = out.row_stride(),
                         .branch = &branch};
  std::ranges::copy(layer.first_output, args.first_output);
  std::ranges::copy(layer.num_outputs, args.num_outputs);
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
                 const Tensor& x, const Tensor& t, LoraBranch& branch) {
  Dim r{"R", rows.num_rows}, k{"K", layer.k}, sums{"sums", lora_sums(layer, rows.num_rows)};
  const DType dtype = activation_dtype(stream, x);
  ShapeCheck("lora_shrink")
      .expect("x", x, dtype, {&r, &k})
      .expect("t", t, DType::kFloat32, {&sums})
      .require(!stream.is_cpu(), "adapters in slots are a GPU's");
  if (!stream.computes()) return;
  const CudaLoraShrink args = {.dtype = dtype,
                               .rows = rows,
                               .layers = layer.slots,
                               .layer_stride = layer.stride,
                               .x = x.raw(),
                               .x_stride = x.row_stride(),
                               .k = layer.k,
                               .max_ranks = layer.max_ranks,
                               .splits = lora_splits(rows.num_rows, layer.k),
                               .pairs = takes_pairs(layer, dtype),
                               .t = t.raw(),
                               .branch = rows.num_rows <= kMostLoraSplitRows ? &branch : nullptr};
  stream.cuda_kernels().lora_shrink(stream.cuda(), args);
}

void lora_expand(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                 const Tensor& t, const Tensor& bias, const Tensor& out, LoraBranch& branch) {
  Dim r{"R", rows.num_rows}, n{"N"};
  Dim sums{"sums", lora_sums(layer, rows.num_rows)};
  const DType dtype = activation_dtype(stream, out);
  ShapeCheck("lora_expand")
      .expect("out", out, dtype, {&r, &n})
      .expect("t", t, DType::kFloat32, {&sums})
      .expect_optional("bias", bias, DType::kFloat32, {&n})
      .require(n.value >= outputs_of(layer), "the layer's parts are outputs");
  if (!stream.computes()) return;
  stream.cuda_kernels().lora_expand(stream.cuda(), expand_args(rows, layer, t, bias, out, branch));
}

void lora_expand_gated(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                       const Tensor& t, const Tensor& bias, const Tensor& gate_up,
                       const Tensor& out, LoraBranch& branch) {
  Dim r{"R", rows.num_rows}, i{"I"};
  Dim sums{"sums", lora_sums(layer, rows.num_rows)};
  const DType dtype = activation_dtype(stream, out);
  ShapeCheck check("lora_expand_gated");
  check.expect("out", out, dtype, {&r, &i});
  Dim both{"2I", 2 * i.value};
  check.expect("gate_up", gate_up, dtype, {&r, &both})
      .expect("t", t, DType::kFloat32, {&sums})
      .expect_optional("bias", bias, DType::kFloat32, {&both})
      .require(layer.num_parts == 2 && layer.num_outputs[0] == i.value &&
                   layer.num_outputs[1] == i.value,
               "the layer's parts are gate and up");
  if (!stream.computes()) return;
  CudaLoraExpand args = expand_args(rows, layer, t, bias, out, branch);
  args.silu_and_mul = true;
  args.gate_up = gate_up.raw();
  args.gate_up_stride = gate_up.row_stride();
  stream.cuda_kernels().lora_expand(stream.cuda(), args);
}

}  // namespace quire::ops
