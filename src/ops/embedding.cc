#include "ops/embedding.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/tasks.h"
#include "ops/cuda/kernels.h"
#include "ops/shape_check.h"

namespace quire::ops {

void embedding(Stream& stream, const Tensor& ids, const Weight& table, int64_t vocab_start,
               const Tensor& out) {
  Dim t{"T"}, h{"H", table.k()};
  const DType dtype = activation_dtype(stream, out);
  ShapeCheck("embedding")
      .expect("ids", ids, DType::kInt32, {&t})
      .expect("out", out, dtype, {&t, &h});
  if (!stream.computes()) return;
  if (!stream.is_cpu()) {
    check(table.format() == dtype,
          "embedding: the table is dense, of the dtype of the activations");
    const CudaEmbedding args = {.dtype = dtype,
                                .ids = ids.data<int32_t>(),
                                .num_tokens = t.value,
                                .table = table.data(),
                                .table_rows = table.n(),
                                .hidden = h.value,
                                .first_id = vocab_start,
                                .out = out.raw()};
    return stream.cuda_kernels().embedding(stream.cuda(), args);
  }
  for_each_row(stream, t.value, h.value, [&](int64_t i) {
    const int64_t row = ids.data<int32_t>()[i] - vocab_start;
    if (row >= 0 && row < table.n()) {
      table.unpack_row(row, out.row<float>(i));
    } else {
      std::fill_n(out.row<float>(i), h.value, 0.0f);
    }
  });
}

void gather_rows(Stream& stream, const Tensor& in, const Tensor& rows, const Tensor& out) {
  Dim t{"T"}, r{"R"}, h{"H"};
  const DType dtype = activation_dtype(stream, in);
  ShapeCheck shapes("gather_rows");
  shapes.expect("in", in, dtype, {&t, &h})
      .expect("rows", rows, DType::kInt32, {&r})
      .expect("out", out, dtype, {&r, &h});
  if (!stream.computes()) return;
  if (!stream.is_cpu()) {
    const CudaGatherRows args = {.dtype = dtype,
                                 .in = in.raw(),
                                 .hidden = h.value,
                                 .rows = rows.data<int32_t>(),
                                 .num_rows = r.value,
                                 .out = out.raw(),
                                 .out_stride = out.row_stride()};
    return stream.cuda_kernels().gather_rows(stream.cuda(), args);
  }
  for_each_row(stream, r.value, h.value, [&](int64_t i) {
    const int64_t row = rows.data<int32_t>()[i];
    check(row >= 0 && row < t.value, "gather_rows: a row index lies outside the input");
    std::memcpy(out.row<float>(i), in.row<float>(row),
                static_cast<size_t>(h.value) * sizeof(float));
  });
}

void scatter_rows(Stream& stream, const Tensor& in, const Tensor& slots, const Tensor& out) {
  Dim r{"R"}, s{"S"}, h{"H"};
  const DType dtype = activation_dtype(stream, in);
  ShapeCheck("scatter_rows")
      .expect("in", in, dtype, {&r, &h})
      .expect("slots", slots, DType::kInt64, {&r})
      .expect("out", out, dtype, {&s, &h})
      .require(in.contiguous() && out.contiguous(), "rows follow each other");
  if (!stream.computes()) return;
  if (!stream.is_cpu()) {
    const CudaScatterRows args = {.dtype = dtype,
                                  .in = in.raw(),
                                  .hidden = h.value,
                                  .slots = slots.data<int64_t>(),
                                  .num_rows = r.value,
                                  .out = out.raw()};
    return stream.cuda_kernels().scatter_rows(stream.cuda(), args);
  }
  for_each_row(stream, r.value, h.value, [&](int64_t i) {
    const int64_t row = slots.data<int64_t>()[i];
    check(row >= 0 && row < s.value, "scatter_rows: a slot lies outside the output");
    std::memcpy(out.row<float>(row), in.row<float>(i),
                static_cast<size_t>(h.value) * sizeof(float));
  });
}

void gather_columns(Stream& stream, const Tensor& in, const Tensor& columns, const Tensor& out) {
  Dim r{"R"}, all{"?"}, c{"C"};
  ShapeCheck("gather_columns")
      .expect("in", in, DType::kFloat32, {&r, &all})
      .expect("columns", columns, DType::kInt32, {&c})
      .expect("out", out, DType::kFloat32, {&r, &c})
      .require(!stream.is_cpu(), "the op is a GPU's");
  if (!stream.computes()) return;
  const CudaGatherColumns args = {.in = in.data<float>(),
                                  .in_stride = in.row_stride(),
                                  .columns = columns.data<int32_t>(),
                                  .num_columns = c.value,
                                  .rows = r.value,
                                  .out = out.data<float>(),
                                  .out_stride = out.row_stride()};
  stream.cuda_kernels().gather_columns(stream.cuda(), args);
}

}  // namespace quire::ops
