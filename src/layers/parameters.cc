#include "layers/parameters.h"

#include <utility>

#include "base/check.h"

namespace quire {

namespace {

// Of each part of a matrix, one value a row.
std::vector<ParameterPart> scale_parts(const std::vector<ParameterPart>& matrix) {
  std::vector<ParameterPart> parts;
  for (const ParameterPart& part : matrix) {
    parts.push_back({{part.shape.front(), 1}, part.rows, {0, 1}, part.first_row});
  }
  return parts;
}

std::vector<ParameterTensor> matrix_tensors(const ops::WeightFormat& format,
                                            std::vector<ParameterPart> parts) {
  if (format.is_dense()) {
    return {{.leaf = "weight",
             .dtypes = dense_dtypes(),
             .parts = std::move(parts),
             .reason = ", as config.json does not quantise this layer (quantization_config and its "
                       "ignore list)"}};
  }
  std::vector<ParameterPart> scales = scale_parts(parts);
  return {{.leaf = "weight",
           .dtypes = {format.dtype},
           .parts = std::move(parts),
           .reason = ", as quantization_config in config.json quantises this layer"},
          {.leaf = "weight_scale",
           .dtypes = dense_dtypes(),
           .parts = std::move(scales),
           .dummy_init = DummyInit::kFloat8Scales,
           .is_scales = true}};
}

}  // namespace

MatrixParameter::MatrixParameter(const Placement& place, MatrixFormat format, int64_t n, int64_t k,
                                 std::vector<ParameterPart> parts)
    : weight_(format.value_or(place.dtype), n, k, place.device),
      tensors_(matrix_tensors(weight_.format(), std::move(parts))) {}

void MatrixParameter::store(const ParameterSlice& slice) {
  if (slice.tensor == 0) {
    weight_.pack_rows(slice.first_row, slice.source);
  } else {
    weight_.set_scales(slice.first_row, slice.source);
  }
}

VectorParameter::VectorParameter(const Placement& place, std::string leaf, int64_t n,
                                 DummyInit init, std::vector<ParameterPart> parts)
    : device_(place.device),
      buffer_(static_cast<size_t>(n) * sizeof(float), place.device),
      tensor_(buffer_.data(), DType::kFloat32, {n}),
      tensors_({{.leaf = std::move(leaf),
                 .dtypes = dense_dtypes(),
                 .parts = std::move(parts),
                 .dummy_init = init}}) {}

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

void VectorParameter::store(const ParameterSlice& slice) {
  const Tensor& source = slice.source;
  check(
      source.rank() == 2 && source.dim(1) == 1 && slice.first_row + source.dim(0) <= tensor_.dim(0),
      "a vector is loaded as rows of one column");
  float* out = tensor_.data<float>() + slice.first_row;
  if (device_.is_cpu()) return copy_values(source, out);
  device_.memory->upload(
      reinterpret_cast<std::byte*>(out), static_cast<size_t>(source.dim(0)) * sizeof(float),
      [&](std::byte* from) { copy_values(source, reinterpret_cast<float*>(from)); });
}

}  // namespace quire
