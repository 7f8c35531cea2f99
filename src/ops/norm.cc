#include "ops/norm.h"

#include "ops/cpu/dispatch.h"
#include "ops/cpu/tasks.h"
#include "ops/cuda/kernels.h"
#include "ops/shape_check.h"

namespace quire::ops {

void rms_norm(Stream& stream, const Tensor& in, const Tensor& weight, float eps, const Tensor& out,
              const Float8Activations& rounded) {
  Dim t{"T"}, h{"H"};
  const DType dtype = activation_dtype(stream, in);
  ShapeCheck("rms_norm")
      .expect("in", in, dtype, {&t, &h})
      .expect("weight", weight, DType::kFloat32, {&h})
      .expect("out", out, dtype, {&t, &h});
  if (!stream.computes()) return;
  if (!stream.is_cpu()) {
    const CudaRmsNorm args = {.dtype = dtype,
                              .x = in.raw(),
                              .residual = nullptr,
                              .weight = weight.data<float>(),
                              .eps = eps,
                              .rows = t.value,
                              .n = h.value,
                              .out = out.raw(),
                              .out_stride = out.row_stride(),
                              .rounded = rounded};
    return stream.cuda_kernels().rms_norm(stream.cuda(), args);
  }
  const Kernels& kernels = kernels_for(stream.isa());
  for_each_row(stream, t.value, h.value, [&](int64_t row) {
    kernels.rms_norm(in.row<float>(row), nullptr, weight.data<float>(), eps, h.value,
                     out.row<float>(row));
  });
}

void add_rms_norm(Stream& stream, const Tensor& x, const Tensor& residual, const Tensor& weight,
                  float eps, const Tensor& out, const Float8Activations& rounded) {
  Dim t{"T"}, h{"H"};
  const DType dtype = activation_dtype(stream, x);
  ShapeCheck("add_rms_norm")
      .expect("x", x, dtype, {&t, &h})
      .expect("residual", residual, dtype, {&t, &h})
      .expect("weight", weight, DType::kFloat32, {&h})
      .expect("out", out, dtype, {&t, &h});
  if (!stream.computes()) return;
  if (!stream.is_cpu()) {
    const CudaRmsNorm args = {.dtype = dtype,
                              .x = x.raw(),
                              .residual = residual.raw(),
                              .weight = weight.data<float>(),
                              .eps = eps,
                              .rows = t.value,
                              .n = h.value,
                              .out = out.raw(),
                              .out_stride = out.row_stride(),
                              .rounded = rounded};
    return stream.cuda_kernels().rms_norm(stream.cuda(), args);
  }
  const Kernels& kernels = kernels_for(stream.isa());
  for_each_row(stream, t.value, h.value, [&](int64_t row) {
    kernels.rms_norm(x.row<float>(row), residual.row<float>(row), weight.data<float>(), eps,
                     h.value, out.row<float>(row));
  });
}

}  // namespace quire::ops
