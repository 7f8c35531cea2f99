#pragma once
// The CPU's product with integer weights: how it is cut into blocks for the caches, tiles for the
// registers and tasks for the threads. The inner loops are in group_linear_*.cc (kernels.h), the
// weight's layout is in group_panels.h.
//
// Where the weight's format rounds activations, they are rounded to int8 with a scale for each
// group of a row's inputs, and integer products are summed exactly within a group (kernels.h says
// how the groups are added). Otherwise the result has, bit for bit, the values of a product with
// the same numbers as a dense float32 weight; a permutation gives the order in which inputs are
// added.
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/weight.h"

namespace quire::ops {

// out = in * weight^T + bias, as ops/linear.h says, with shapes that were checked there.
void group_linear_on_cpu(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
                         const Tensor& out);

}  // namespace quire::ops
