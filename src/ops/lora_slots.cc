#include "ops/lora_slots.h"

#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

// Whether the layer's kernels use tensor cores.
bool takes_pairs(const LoraSlotLayer& layer) {
  bool whole = true;
  for (int part = 0; part < layer.num_parts; ++part) {
    whole &= layer.first_output[part] % 8 == 0 && layer.num_outputs[part] % 8 == 0;
  }
  // Nothing is multiplied by an embedding's inputs.
  return whole && takes_lora_pairs(layer.dtype, layer.is_embedding ? 0 : layer.k);
}

int splits_of(const LoraSlotLayer& layer, int64_t rows) {
  return layer.is_embedding ? 1 : lora_splits(rows, layer.k);
}

CudaLoraExpand expand_args(const CudaLoraRows& rows, const LoraSlotLayer& layer, const Tensor& t,
                           const Tensor& bias, const Tensor& out, LoraBranch& branch) {
  CudaLoraExpand args = {.dtype = layer.dtype,
                         .out_dtype = out.dtype(),
                         .rows = rows,
                         .layers = layer.slots,
                         .layer_stride = layer.stride,
                         .t = t.raw(),
                         .max_ranks = layer.max_ranks,
                         .splits = splits_of(layer, rows.num_rows),
                         .pairs = takes_pairs(layer),
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
  return splits_of(layer, rows) * rows * layer.max_ranks;
}

void lora_shrink(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                 const Tensor& x, const Tensor& t, LoraBranch& branch) {
  Dim r{"R", rows.num_rows}, k{"K", layer.k}, sums{"sums", lora_sums(layer, rows.num_rows)};
  ShapeCheck("lora_shrink")
      .expect("x", x, layer.dtype, {&r, &k})
      .expect("t", t, DType::kFloat32, {&sums})
      .require(!stream.is_cpu(), "adapters in slots are a GPU's")
      .require(!layer.is_embedding, "an embedding is looked up");
  if (!stream.computes()) return;
  const CudaLoraShrink args = {.dtype = layer.dtype,
                               .rows = rows,
                               .layers = layer.slots,
                               .layer_stride = layer.stride,
                               .x = x.raw(),
                               .x_stride = x.row_stride(),
                               .k = layer.k,
                               .max_ranks = layer.max_ranks,
                               .splits = splits_of(layer, rows.num_rows),
                               .pairs = takes_pairs(layer),
                               .t = t.raw(),
                               .branch = rows.num_rows <= kMostLoraSplitRows ? &branch : nullptr};
  stream.cuda_kernels().lora_shrink(stream.cuda(), args);
}

void lora_look_up(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                  const Tensor& token_ids, const Tensor& t) {
  Dim r{"R", rows.num_rows}, sums{"sums", lora_sums(layer, rows.num_rows)};
  ShapeCheck("lora_look_up")
      .expect("token_ids", token_ids, DType::kInt32, {&r})
      .expect("t", t, DType::kFloat32, {&sums})
      .require(!stream.is_cpu(), "adapters in slots are a GPU's")
      .require(layer.is_embedding, "what is looked up is an embedding");
  if (!stream.computes()) return;
  stream.cuda_kernels().lora_look_up(stream.cuda(), {.dtype = layer.dtype,
                                                     .rows = rows,
                                                     .layers = layer.slots,
                                                     .layer_stride = layer.stride,
                                                     .ids = token_ids.data<int32_t>(),
                                                     .k = layer.k,
                                                     .max_ranks = layer.max_ranks,
                                                     .pairs = takes_pairs(layer),
                                                     .t = t.raw()});
}

void lora_expand(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                 const Tensor& t, const Tensor& bias, const Tensor& out, LoraBranch& branch) {
  Dim r{"R", rows.num_rows}, n{"N"};
  Dim sums{"sums", lora_sums(layer, rows.num_rows)};
  ShapeCheck("lora_expand")
      .expect("out", out, out.dtype(), {&r, &n})
      .expect("t", t, DType::kFloat32, {&sums})
      .expect_optional("bias", bias, DType::kFloat32, {&n})
      .require(out.dtype() == layer.dtype || out.dtype() == DType::kFloat32,
               "outputs are of the layer's dtype or float32")
      .require(n.value >= outputs_of(layer), "the layer's parts are outputs");
  if (!stream.computes()) return;
  stream.cuda_kernels().lora_expand(stream.cuda(), expand_args(rows, layer, t, bias, out, branch));
}

void lora_expand_gated(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                       const Tensor& t, const Tensor& bias, const Tensor& gate_up,
                       const Tensor& out, LoraBranch& branch) {
  Dim r{"R", rows.num_rows}, i{"I"};
  Dim sums{"sums", lora_sums(layer, rows.num_rows)};
  ShapeCheck check("lora_expand_gated");
  check.expect("out", out, layer.dtype, {&r, &i});
  Dim both{"2I", 2 * i.value};
  check.expect("gate_up", gate_up, layer.dtype, {&r, &both})
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

void lora_begin(Stream& stream, const Tensor& room) {
  Dim bytes{"bytes"};
  ShapeCheck("lora_begin")
      .expect("room", room, DType::kUInt8, {&bytes})
      .require(!stream.is_cpu(), "adapters in slots are a GPU's");
  if (!stream.computes()) return;
  stream.cuda_kernels().lora_begin(stream.cuda(), {.memory = room.raw(), .bytes = bytes.value});
}

bool lora_linear(Stream& stream, const CudaLoraRows& rows, const LoraSlotLayer& layer,
                 const Tensor& x, const Weight& weight, const Tensor& bias, bool gated,
                 const Tensor& out) {
  Dim r{"R", rows.num_rows}, k{"K", layer.k}, n{"N", weight.n()};
  Dim out_n{"N", weight.n() / (gated ? 2 : 1)};
  ShapeCheck("lora_linear")
      .expect("x", x, layer.dtype, {&r, &k})
      .expect_optional("bias", bias, DType::kFloat32, {&n})
      .expect("out", out, layer.dtype, {&r, &out_n})
      .require(weight.k() == layer.k, "the adapters' inputs are the base's")
      .require(n.value >= outputs_of(layer), "the layer's parts are outputs")
      .require(!stream.is_cpu(), "adapters in slots are a GPU's");
  if (!stream.computes()) return false;
  CudaLoraLinear args = {.product = {.dtype = layer.dtype,
                                     .in = x.raw(),
                                     .in_stride = x.row_stride(),
                                     .weight = weight.view(),
                                     .rows = rows.num_rows,
                                     .n = n.value,
                                     .k = k.value,
                                     .bias = bias.defined() ? bias.data<float>() : nullptr,
                                     .out = out.raw(),
                                     .out_stride = out.row_stride(),
                                     .out_dtype = layer.dtype,
                                     .silu_and_mul = gated},
                         .rows = rows,
                         .layers = layer.slots,
                         .layer_stride = layer.stride,
                         .max_ranks = layer.max_ranks,
                         .num_parts = layer.num_parts,
                         .first_output = {},
                         .num_outputs = {},
                         .tiles = layer.tiles};
  std::ranges::copy(layer.first_output, args.first_output);
  std::ranges::copy(layer.num_outputs, args.num_outputs);
  const CudaKernels& kernels = stream.cuda_kernels();
  if (!kernels.lora_linear_takes(stream.cuda(), args)) return false;
  kernels.lora_linear(stream.cuda(), args);
  return true;
}

void lora_norm(Stream& stream, const CudaLoraRows& rows, const LoraSlotNorm& norm, float eps,
               const Tensor& x, const Tensor& out) {
  Dim r{"R", rows.num_rows}, n{"N"};
  const DType dtype = activation_dtype(stream, x);
  ShapeCheck("lora_norm")
      .expect("x", x, dtype, {&r, &n})
      .expect("out", out, dtype, {&r, &n})
      .require(x.contiguous() && out.contiguous(), "rows follow each other")
      .require(x.raw() != out.raw(), "the norm's input is still there")
      .require(!stream.is_cpu(), "adapters in slots are a GPU's");
  if (!stream.computes()) return;
  stream.cuda_kernels().lora_norm(stream.cuda(), {.dtype = dtype,
                                                  .rows = rows,
                                                  .weights = norm.slots,
                                                  .weight_stride = norm.stride,
                                                  .x = x.raw(),
                                                  .eps = eps,
                                                  .n = n.value,
                                                  .out = out.raw()});
}

}  // namespace quire::ops
