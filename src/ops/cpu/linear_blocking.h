#pragma once
// The CPU's matrix product, except for integer weights (group_linear.h): how it is cut into blocks
// for the caches, tiles for the registers and tasks for the threads. The inner loops are in
// linear_cpu.cc, linear_avx2.cc, linear_avx512.cc and linear_amx.cc (kernels.h), the weight's
// layout is in weight_panels.h.
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/weight.h"

namespace quire::ops {

// out = in * weight^T + bias, as ops/linear.h says, with shapes that were checked there.
void linear_on_cpu(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
                   const Tensor& out);

}  // namespace quire::ops
