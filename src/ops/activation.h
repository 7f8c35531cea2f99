#pragma once
// The gate of a gated MLP: out = silu(gate) * up, silu(x) = x / (1 + exp(-x)).
//
// gate_up [T, 2I]: gate in columns [0, I), up in [I, 2I). out [T, I]. Both have the activations'
// type: float32 on the CPU; float32, bfloat16 or float16 on a GPU.
#include "core/stream.h"
#include "core/tensor.h"

namespace quire::ops {

void silu_and_mul(Stream& stream, const Tensor& gate_up, const Tensor& out);

}  // namespace quire::ops
