#include "ops/norm.h"

#include "ops/dispatch.h"
#include "ops/shape_check.h"
#include "ops/tasks.h"

namespace quire::ops {

void rms_norm(Stream& stream, const Tensor& in, const Tensor& weight, float eps,
              const Tensor& out) {
  Dim t{"T"}, h{"H"};
  ShapeCheck("rms_norm")
      .expect("in", in, DType::kFloat32, {&t, &h})
      .expect("weight", weight, DType::kFloat32, {&h})
      .expect("out", out, DType::kFloat32, {&t, &h});
  const Kernels& kernels = kernels_for(stream.isa());
  for_each_row(stream, t.value, h.value, [&](int64_t row) {
    kernels.rms_norm(in.row<float>(row), nullptr, weight.data<float>(), eps, h.value,
                     out.row<float>(row));
  });
}

void add_rms_norm(Stream& stream, const Tensor& x, const Tensor& residual, const Tensor& weight,
                  float eps, const Tensor& out) {
  Dim t{"T"}, h{"H"};
  ShapeCheck("add_rms_norm")
      .expect("x", x, DType::kFloat32, {&t, &h})
      .expect("residual", residual, DType::kFloat32, {&t, &h})
      .expect("weight", weight, DType::kFloat32, {&h})
      .expect("out", out, DType::kFloat32, {&t, &h});
  const Kernels& kernels = kernels_for(stream.isa());
  for_each_row(stream, t.value, h.value, [&](int64_t row) {
    kernels.rms_norm(x.row<float>(row), residual.row<float>(row), weight.data<float>(), eps,
                     h.value, out.row<float>(row));
  });
}

}  // namespace quire::ops
