#include "ops/lora.h"

#include <cstring>

#include "ops/cpu/tasks.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

const float* vector_or_null(const Tensor& vector) {
  return vector.defined() ? vector.data<float>() : nullptr;
}

void scale_sum(const LoraSum& sum, const float* delta, int64_t n, float* out) {
  const float* factor = sum.factor.data<float>();
  const float* bias = vector_or_null(sum.bias);
  for (int64_t i = 0; i < n; ++i) {
    const float base_bias = bias == nullptr ? 0.0f : bias[i];
    const float addend = delta == nullptr ? 0.0f : sum.scale * delta[i];
    out[i] = factor[i] * (out[i] - base_bias + addend) + base_bias;
  }
}

}  // namespace

void add_lora(Stream& stream, std::span<const int32_t> rows, const LoraSum& sum,
              const Tensor& out) {
  check(stream.is_cpu(), "add_lora runs on the CPU");
  Dim t{"T"}, r{"R", static_cast<int64_t>(rows.size())}, n{"N"};
  ShapeCheck("add_lora")
      .expect("out", out, DType::kFloat32, {&t, &n})
      .expect_optional("delta", sum.delta, DType::kFloat32, {&r, &n})
      .expect_optional("factor", sum.factor, DType::kFloat32, {&n})
      .expect_optional("bias", sum.bias, DType::kFloat32, {&n})
      .expect_optional("added", sum.added, DType::kFloat32, {&n});
  if (!stream.computes()) return;
  const float* added = vector_or_null(sum.added);
  for_each_row(stream, r.value, n.value, [&](int64_t i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    check(row >= 0 && row < t.value, "add_lora: a row lies outside the output");
    const float* delta = sum.delta.defined() ? sum.delta.row<float>(i) : nullptr;
    float* to = out.row<float>(row);
    if (sum.factor.defined()) {
      scale_sum(sum, delta, n.value, to);
    } else if (delta != nullptr) {
      for (int64_t c = 0; c < n.value; ++c) to[c] += sum.scale * delta[c];
    }
    if (added == nullptr) return;
    for (int64_t c = 0; c < n.value; ++c) to[c] += added[c];
  });
}

void scatter_rows(Stream& stream, const Tensor& in, std::span<const int32_t> rows,
                  const Tensor& out) {
  check(stream.is_cpu(), "scatter_rows runs on the CPU");
  Dim t{"T"}, r{"R", static_cast<int64_t>(rows.size())}, n{"N"};
  ShapeCheck("scatter_rows")
      .expect("in", in, DType::kFloat32, {&r, &n})
      .expect("out", out, DType::kFloat32, {&t, &n});
  if (!stream.computes()) return;
  for_each_row(stream, r.value, n.value, [&](int64_t i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    check(row >= 0 && row < t.value, "scatter_rows: a row lies outside the output");
    std::memcpy(out.row<float>(row), in.row<float>(i),
                static_cast<size_t>(n.value) * sizeof(float));
  });
}

}  // namespace quire::ops
