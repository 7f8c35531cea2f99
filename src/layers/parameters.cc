#include "layers/parameters.h"

#include "base/check.h"

namespace quire {

VectorParameter::VectorParameter(const Placement& place, int64_t n, DummyInit init,
                                 std::vector<ParameterPart> parts)
    : device_(place.device),
      buffer_(static_cast<size_t>(n) * sizeof(float), place.device),
      tensor_(buffer_.data(), DType::kFloat32, {n}),
      init_(init),
      parts_(std::move(parts)) {}

namespace {

template <typename T>
void copy_column(const Tensor& source, float* out) {
  for (int64_t i = 0; i < source.dim(0); ++i) out[i] = static_cast<float>(*source.row<T>(i));
}

void copy_values(const Tensor& source, float* out) {
  switch (source.dtype()) {
    case DType::kFloat32:
      return copy_column<float>(source, out);
    case DType::kBFloat16:
      return copy_column<BFloat16>(source, out);
    case DType::kFloat16:
      return copy_column<Float16>(source, out);
    default:
      check(false, "weights are loaded from float32, bfloat16 or float16");
  }
}

}  // namespace

void VectorParameter::store(int64_t first_row, const Tensor& source) {
  check(source.rank() == 2 && source.dim(1) == 1 && first_row + source.dim(0) <= tensor_.dim(0),
        "a vector is loaded as rows of one column");
  float* out = tensor_.data<float>() + first_row;
  if (device_.is_cpu()) return copy_values(source, out);
  device_.memory->upload(
      reinterpret_cast<std::byte*>(out), static_cast<size_t>(source.dim(0)) * sizeof(float),
      [&](std::byte* from) { copy_values(source, reinterpret_cast<float*>(from)); });
}

}  // namespace quire
