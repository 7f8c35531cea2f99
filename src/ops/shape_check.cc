#include "ops/shape_check.h"

#include <fmt/format.h>

#include <string>

namespace quire::ops {
namespace {

std::string expected(DType dtype, std::initializer_list<Dim*> dims) {
  std::string text = fmt::format("{}[", name_of(dtype));
  const char* separator = "";
  for (const Dim* dim : dims) {
    text += separator;
    text += dim->value < 0 ? std::string(dim->name) : fmt::format("{}={}", dim->name, dim->value);
    separator = ", ";
  }
  return text + "]";
}

bool matches(const Tensor& tensor, DType dtype, std::initializer_list<Dim*> dims) {
  if (!tensor.defined() || tensor.dtype() != dtype ||
      tensor.rank() != static_cast<int>(dims.size())) {
    return false;
  }
  int i = 0;
  for (Dim* dim : dims) {
    if (dim->value >= 0 && dim->value != tensor.dim(i)) return false;
    ++i;
  }
  return true;
}

}  // namespace

DType activation_dtype(const Stream& stream, const Tensor& tensor) {
  if (stream.is_cpu()) return DType::kFloat32;
  const DType dtype = tensor.dtype();
  check(dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16,
        "activations are float32, bfloat16 or float16");
  return dtype;
}

ShapeCheck& ShapeCheck::expect(std::string_view argument, const Tensor& tensor, DType dtype,
                               std::initializer_list<Dim*> dims) {
  if (!matches(tensor, dtype, dims)) [[unlikely]] {
    check_failed(
        fmt::format("{}: argument `{}` must be {}, not {}", op_, argument, expected(dtype, dims),
                    tensor.defined() ? tensor.describe() : std::string("undefined")),
        where_);
  }
  int i = 0;
  for (Dim* dim : dims) dim->value = tensor.dim(i++);
  return *this;
}

ShapeCheck& ShapeCheck::expect_optional(std::string_view argument, const Tensor& tensor,
                                        DType dtype, std::initializer_list<Dim*> dims) {
  return tensor.defined() ? expect(argument, tensor, dtype, dims) : *this;
}

ShapeCheck& ShapeCheck::require(bool ok, std::string_view what) {
  if (!ok) [[unlikely]]
    check_failed(fmt::format("{}: {}", op_, what), where_);
  return *this;
}

}  // namespace quire::ops
