#pragma once
// RMSNorm (Zhang and Sennrich 2019): out = x / sqrt(mean(x^2) + eps) * weight, a row at a time.
//
// Activations are float32 on the CPU; float32, bfloat16 or float16 on a GPU.
// Deterministic: a row's result depends on nothing but that row.
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/float8_activations.h"

namespace quire::ops {

// in, out [T, H] activations; weight float32[H]. out may be in, or columns of a wider matrix.
// With `rounded`, on a GPU, out is rounded for a product (ops/linear.h) and holds anything
// afterwards.
void rms_norm(Stream& stream, const Tensor& in, const Tensor& weight, float eps, const Tensor& out,
              const Float8Activations& rounded = {});

// residual += x, then out = rms_norm(residual). x, residual, out [T, H] activations; out may be x.
void add_rms_norm(Stream& stream, const Tensor& x, const Tensor& residual, const Tensor& weight,
                  float eps, const Tensor& out, const Float8Activations& rounded = {});

}  // namespace quire::ops
