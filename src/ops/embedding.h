#pragma once
// Rows of a table by index. Activations are float32 on the CPU; float32, bfloat16 or float16 on a
// GPU.
#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"
#include "ops/weight.h"

namespace quire::ops {

// out[t] = table row (ids[t] - vocab_start), or zeros where that is outside [0, table.n()): then
// another rank of a sharded vocabulary has the row. ids int32[T]; table Weight [V, H], the same
// object as a tied output layer's; out [T, H] activations.
void embedding(Stream& stream, const Tensor& ids, const Weight& table, int64_t vocab_start,
               const Tensor& out);

// out[i] = in[rows[i]]. in [T, H] and out [R, H] activations; rows int32[R]. `out` may be columns
// of a wider matrix.
void gather_rows(Stream& stream, const Tensor& in, const Tensor& rows, const Tensor& out);

// out[slots[i]] = in[i]. in [R, H] and out [S, H] activations; slots int64[R], no two the same. On
// a GPU rows with a slot of -1 are left out.
void scatter_rows(Stream& stream, const Tensor& in, const Tensor& slots, const Tensor& out);

// out[r][i] = in[r][columns[i]], or -infinity where columns[i] is -1. in float32[R, ?] and out
// float32[R, C]; columns int32[C]. GPU only.
void gather_columns(Stream& stream, const Tensor& in, const Tensor& columns, const Tensor& out);

}  // namespace quire::ops
