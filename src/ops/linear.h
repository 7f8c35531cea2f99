#pragma once
// out = in * W^T + bias.
//
// in   [T, K] of the activations' dtype (rows may be strided): float32 on the CPU; on a GPU that of
//      a dense weight, and bfloat16 or float16 for a float8 or integer weight
// W    Weight [N, K]. On the CPU any format. CPUs that multiply bfloat16 (AVX-512 BF16, AMX) may
//      round `in` to it where the weight is bfloat16; an integer weight says whether `in` is
//      rounded to int8 (ops/cpu/group_linear.h). On a GPU dense; or float8 where
//      multiplies_float8_on_gpu(), which rounds `in` to float8; or integers where
//      multiplies_integers_on_gpu() (ops/cuda/kernels.h says how they are rounded)
// bias float32[N] or undefined
// out  [T, N] of the activations' dtype, on a GPU also float32 (rows may be strided); overwritten
// scratch: linear_scratch(stream, W, T) bytes, undefined where that is none
//
// Sums are float32. Deterministic: on the CPU out[t] depends on in[t], W and bias only, bit for
// bit, not on T or the threads. On a GPU the same arguments give the same bits, but how sums are
// cut, and so a row's last bits, may depend on T (ops/cuda/kernels.h).
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/float8_activations.h"
#include "ops/weight.h"

namespace quire::ops {

// The compute capability of the GPUs that have kernels for float8 and integer weights; and whether
// these kernels take a weight [n, k] or a format, with activations of `dtype`.
inline constexpr int kQuantisedCapability = 90;
bool multiplies_float8_on_gpu(DType dtype, int64_t n, int64_t k);
bool multiplies_integers_on_gpu(DType dtype, const WeightFormat& format);

// Bytes of scratch for a product of `rows` rows: only float8 and integers on a GPU need any.
int64_t linear_scratch(const Stream& stream, const Weight& weight, int64_t rows);

// On a GPU a float8 product can leave it to the op that makes its input to round it. This says
// where in `scratch` (linear_scratch() bytes) it goes, for `rows` rows of activations of `dtype`;
// the product, gated or not, is then given the result. No data: the product takes activations as
// they are. The bits are the same either way.
Float8Activations rounded_input(Stream& stream, const Weight& weight, const Tensor& bias,
                                DType dtype, int64_t rows, bool is_gated, const Tensor& scratch);

// With rounded_in, `in` only says how many rows there are.
void linear(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
            const Tensor& out, const Tensor& scratch = Tensor(),
            const Float8Activations& rounded_in = {});

// out[t] = silu(gate) * up, where gate and up are the halves of in * W^T + bias: the first two
// thirds of a gated MLP. W Weight [2I, K]; out [T, I]. gate_up float32[T, 2I] is for the op's own
// use on the CPU; undefined on a GPU. With rounded_out, of a float8 weight, `out` is rounded for
// another product and holds anything afterwards.
void gated_linear(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
                  const Tensor& gate_up, const Tensor& out, const Tensor& scratch = Tensor(),
                  const Float8Activations& rounded_in = {},
                  const Float8Activations& rounded_out = {});

}  // namespace quire::ops
