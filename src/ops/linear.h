#pragma once
// out = in * W^T + bias.
//
// in   float32[T, K] (rows may be strided)
// W    Weight [N, K]; where it is bfloat16, `in` may be rounded to bfloat16 before the products on
// CPUs
//      that multiply bfloat16 (AVX-512 BF16); sums are float32
// bias float32[N] or undefined
// out  float32[T, N] (rows may be strided), overwritten
// Deterministic: out[t] depends on in[t], W and bias alone, bit for bit, not on T or the threads.
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/weight.h"

namespace quire::ops {

void linear(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
            const Tensor& out);

// out[t] = silu(gate) * up, where gate and up are the halves of in * W^T + bias: the first two
// thirds of a gated MLP. W Weight [2I, K]; out [T, I]. gate_up float32[T, 2I] is for the op's own
// use: on the CPU alone, where gated_linear_scratch_bytes says how much it takes.
void gated_linear(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
                  const Tensor& gate_up, const Tensor& out);
size_t gated_linear_scratch_bytes(DeviceType device, int64_t rows, int64_t n);

}  // namespace quire::ops
