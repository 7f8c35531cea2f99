#include "ops/activation.h"

#include "ops/cpu/dispatch.h"
#include "ops/cpu/tasks.h"
#include "ops/cuda/kernels.h"
#include "ops/shape_check.h"

namespace quire::ops {

void silu_and_mul(Stream& stream, const Tensor& gate_up, const Tensor& out) {
  Dim t{"T"}, i{"I"};
  const DType dtype = activation_dtype(stream, gate_up);
  ShapeCheck shapes("silu_and_mul");
  shapes.expect("out", out, dtype, {&t, &i});
  Dim both{"2I", 2 * i.value};
  shapes.expect("gate_up", gate_up, dtype, {&t, &both});
  if (!stream.computes()) return;
  if (!stream.is_cpu()) {
    const CudaSiluAndMul args = {.dtype = dtype,
                                 .gate_up = gate_up.raw(),
                                 .rows = t.value,
                                 .inner = i.value,
                                 .out = out.raw()};
    return stream.cuda_kernels().silu_and_mul(stream.cuda(), args);
  }
  const Kernels& kernels = kernels_for(stream.isa());
  for_each_row(stream, t.value, 2 * i.value, [&](int64_t row) {
    const float* gate = gate_up.row<float>(row);
    kernels.silu_and_mul(gate, gate + i.value, i.value, out.row<float>(row));
  });
}

}  // namespace quire::ops
