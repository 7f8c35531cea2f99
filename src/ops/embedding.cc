#include "ops/embedding.h"

#include <algorithm>
#include <cstring>

#include "ops/shape_check.h"
#include "ops/tasks.h"

namespace quire::ops {

void embedding(Stream& stream, const Tensor& ids, const Weight& table, int64_t vocab_start,
               const Tensor& out) {
  Dim t{"T"}, h{"H", table.k()};
  ShapeCheck("embedding")
      .expect("ids", ids, DType::kInt32, {&t})
      .expect("out", out, DType::kFloat32, {&t, &h});
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
  ShapeCheck shapes("gather_rows");
  shapes.expect("in", in, DType::kFloat32, {&t, &h})
      .expect("rows", rows, DType::kInt32, {&r})
      .expect("out", out, DType::kFloat32, {&r, &h});
  for_each_row(stream, r.value, h.value, [&](int64_t i) {
    const int64_t row = rows.data<int32_t>()[i];
    check(row >= 0 && row < t.value, "gather_rows: a row index lies outside the input");
    std::memcpy(out.row<float>(i), in.row<float>(row),
                static_cast<size_t>(h.value) * sizeof(float));
  });
}

}  // namespace quire::ops
