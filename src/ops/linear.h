#pragma once
// out = in * W^T + bias.
//
// in   [T, K] of the activations' dtype (rows may be strided): float32 on the CPU; on a GPU that of
//      a dense weight
// W    Weight [N, K]. On the CPU of any format; where it is bfloat16, `in` may be rounded to
// bfloat16
//      before the products on CPUs that multiply bfloat16 (AVX-512 BF16). On a GPU dense
// bias float32[N] or undefined
// out  [T, N] of the activations' dtype, on a GPU also float32 (rows may be strided); overwritten
//
// Sums are float32. Deterministic: on the CPU out[t] depends on in[t], W and bias only, bit for
// bit, not on T or the threads. On a GPU the same arguments give the same bits, but how sums are
// cut, and so a row's last bits, may depend on T (ops/cuda/kernels.h).
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/weight.h"

namespace quire::ops {

void linear(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
            const Tensor& out);

// out[t] = silu(gate) * up, where gate and up are the halves of in * W^T + bias: the first two
// thirds of a gated MLP. W Weight [2I, K]; out [T, I]. gate_up float32[T, 2I] is for the op's own
// use: on the CPU only, where gated_linear_scratch_bytes says how much it takes.
void gated_linear(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
                  const Tensor& gate_up, const Tensor& out);
size_t gated_linear_scratch_bytes(DeviceType device, int64_t rows, int64_t n);

}  // namespace quire::ops
