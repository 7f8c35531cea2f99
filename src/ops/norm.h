#pragma once
// RMSNorm (Zhang and Sennrich 2019): out = x / sqrt(mean(x^2) + eps) * weight, a row at a time.
//
// Deterministic: a row's result depends on that row alone.
#include "core/stream.h"
#include "core/tensor.h"

namespace quire::ops {

// in, out [T, H], float32 on the CPU, on a GPU of one dtype; weight float32[H]. out may be in.
void rms_norm(Stream& stream, const Tensor& in, const Tensor& weight, float eps, const Tensor& out);

// residual += x, then out = rms_norm(residual). x, residual, out [T, H] of one dtype, as above; out
// may be x.
void add_rms_norm(Stream& stream, const Tensor& x, const Tensor& residual, const Tensor& weight,
                  float eps, const Tensor& out);

}  // namespace quire::ops
