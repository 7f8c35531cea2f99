#include "ops/linear.h"

#include "base/check.h"
#include "ops/activation.h"
#include "ops/cpu/linear_blocking.h"
#include "ops/cuda/kernels.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

bool is_float8_product(const Weight& weight, DType dtype) {
  return weight.format().kind == WeightKind::kFloat8 && takes_float8(dtype, weight.n(), weight.k());
}

bool is_integer_product(const Weight& weight, DType dtype) {
  return multiplies_integers_on_gpu(dtype, weight.format());
}

int64_t bytes_of(const Tensor& scratch) {
  return scratch.defined() ? scratch.dim(0) : 0;
}

// What is rounded outside of a product: its inputs by another op, its outputs for another.
struct RoundedEnds {
  Float8Activations in = {};
  Float8Activations out = {};
};

void linear_on_gpu(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
                   bool gated, const Tensor& out, const Tensor& scratch,
                   const RoundedEnds& rounded) {
  Dim t{"T"}, n{"N", weight.n()}, k{"K", weight.k()}, out_n{"N", weight.n() / (gated ? 2 : 1)};
  const DType dtype = activation_dtype(stream, in);
  ShapeCheck(gated ? "gated_linear" : "linear")
      .expect("in", in, dtype, {&t, &k})
      .expect_optional("bias", bias, DType::kFloat32, {&n})
      .expect("out", out, out.dtype() == DType::kFloat32 ? DType::kFloat32 : dtype, {&t, &out_n})
      .require(weight.format() == dtype || is_float8_product(weight, dtype) ||
                   is_integer_product(weight, dtype),
               "the weight is dense, of the dtype of the activations, or float8, or of integers")
      .require(bytes_of(scratch) >= linear_scratch(stream, weight, t.value),
               "there is scratch for a quantised weight");
  if (!stream.computes()) return;
  const CudaLinear args = {.dtype = dtype,
                           .in = in.raw(),
                           .in_stride = in.row_stride(),
                           .weight = weight.view(),
                           .rows = t.value,
                           .n = n.value,
                           .k = k.value,
                           .bias = bias.defined() ? bias.data<float>() : nullptr,
                           .out = out.raw(),
                           .out_stride = out.row_stride(),
                           .out_dtype = out.dtype(),
                           .silu_and_mul = gated,
                           .scratch = scratch.defined() ? scratch.raw() : nullptr,
                           .rounded_in = rounded.in,
                           .rounded_out = rounded.out};
  stream.cuda_kernels().linear(stream.cuda(), args);
}

}  // namespace

bool multiplies_float8_on_gpu(DType dtype, int64_t n, int64_t k) {
  return takes_float8(dtype, n, k);
}

bool multiplies_integers_on_gpu(DType dtype, const WeightFormat& format) {
  return takes_integers(dtype, format);
}

int64_t linear_scratch(const Stream& stream, const Weight& weight, int64_t rows) {
  if (stream.is_cpu() || weight.format().is_dense()) return 0;
  if (weight.format().is_integer()) {
    return group_scratch_bytes(rows, weight.n(), weight.k(), weight.may_be_permuted());
  }
  return linear_scratch_bytes(rows, weight.k());
}

Float8Activations rounded_input(Stream& stream, const Weight& weight, const Tensor& bias,
                                DType dtype, int64_t rows, bool is_gated, const Tensor& scratch) {
  if (stream.is_cpu() || !stream.computes() || !is_float8_product(weight, dtype)) return {};
  check(bytes_of(scratch) >= linear_scratch(stream, weight, rows),
        "there is scratch for the rounded rows");
  const CudaLinear args = {.dtype = dtype,
                           .in = nullptr,
                           .in_stride = weight.k(),
                           .weight = weight.view(),
                           .rows = rows,
                           .n = weight.n(),
                           .k = weight.k(),
                           .bias = bias.defined() ? bias.data<float>() : nullptr,
                           .out = nullptr,
                           .out_stride = is_gated ? weight.n() / 2 : weight.n(),
                           .out_dtype = dtype,
                           .silu_and_mul = is_gated,
                           .scratch = scratch.raw()};
  return stream.cuda_kernels().linear_rounded_in(stream.cuda(), args);
}

void gated_linear(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
                  const Tensor& gate_up, const Tensor& out, const Tensor& scratch,
                  const Float8Activations& rounded_in, const Float8Activations& rounded_out) {
  if (!stream.is_cpu()) {
    return linear_on_gpu(stream, in, weight, bias, true, out, scratch, {rounded_in, rounded_out});
  }
  linear(stream, in, weight, bias, gate_up);
  silu_and_mul(stream, gate_up, out);
}

void linear(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
            const Tensor& out, const Tensor& scratch, const Float8Activations& rounded_in) {
  if (!stream.is_cpu()) {
    return linear_on_gpu(stream, in, weight, bias, false, out, scratch, {.in = rounded_in});
  }
  Dim t{"T"}, n{"N", weight.n()}, k{"K", weight.k()};
  ShapeCheck("linear")
      .expect("in", in, DType::kFloat32, {&t, &k})
      .expect_optional("bias", bias, DType::kFloat32, {&n})
      .expect("out", out, DType::kFloat32, {&t, &n});
  if (!stream.computes()) return;
  linear_on_cpu(stream, in, weight, bias, out);
}

}  // namespace quire::ops
