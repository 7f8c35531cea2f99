#pragma once
// Adds what adapters contribute to a layer's outputs, for chosen rows. On the CPU.
//
// Deterministic: a row's result depends on nothing but that row.
#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace quire::ops {

// Row rows[i] of `out` becomes
//
//   factor * (out - bias + scale * delta[i]) + bias + added
//
// for the vectors that are defined; without a factor: out + scale * delta[i] + added.
// delta float32[R, N], undefined: zeros; factor, bias, added float32[N] or undefined; out
// float32[T, N], its rows may be strided.
struct LoraSum {
  Tensor delta = {};
  float scale = 0;
  Tensor factor = {};
  Tensor bias = {};
  Tensor added = {};
};
void add_lora(Stream& stream, std::span<const int32_t> rows, const LoraSum& sum, const Tensor& out);

// out[rows[i]] = in[i]. in float32[R, N], out float32[T, N].
void scatter_rows(Stream& stream, const Tensor& in, std::span<const int32_t> rows,
                  const Tensor& out);

}  // namespace quire::ops
