#pragma once
// A view of device memory with an element type and a shape. It owns nothing: a Buffer or an Arena
// does.
//
// Dimensions after the first are contiguous; the first has a stride, so that a view of some columns
// of a matrix (the q, k and v parts of a fused projection, say) needs no copy. Thread safety: a
// plain value.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"
#include "core/dtype.h"

namespace quire {

template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kFloat32;
}
template <>
constexpr DType dtype_of<BFloat16>() {
  return DType::kBFloat16;
}
template <>
constexpr DType dtype_of<Float16>() {
  return DType::kFloat16;
}
template <>
constexpr DType dtype_of<Float8E4M3>() {
  return DType::kFloat8E4M3;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::kUInt8;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::kInt8;
}

class Tensor {
 public:
  static constexpr int kMaxRank = 4;

  Tensor() = default;
  // A contiguous tensor over `data`, which holds at least num_elements() elements.
  Tensor(void* data, DType dtype, std::initializer_list<int64_t> shape);

  bool defined() const { return rank_ > 0; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int64_t dim(int i) const { return shape_[static_cast<size_t>(i)]; }
  int64_t num_elements() const;
  // Elements from one index of dimension 0 to the next; at least the product of the other
  // dimensions.
  int64_t row_stride() const { return row_stride_; }
  bool contiguous() const;

  void* raw() const { return data_; }
  template <typename T>
  T* data() const {
    check(dtype_ == dtype_of<T>(), "the tensor holds another element type");
    return static_cast<T*>(data_);
  }
  // Pointer to index i of dimension 0.
  template <typename T>
  T* row(int64_t i) const {
    return data<T>() + i * row_stride_;
  }

  // Indices [begin, end) of dimension 0.
  Tensor rows(int64_t begin, int64_t end) const;
  // Columns [begin, end) of a matrix (rank 2); shares memory, keeps the row stride.
  Tensor columns(int64_t begin, int64_t end) const;

  // "bfloat16[3, 64]".
  std::string describe() const;

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
  int rank_ = 0;
  std::array<int64_t, kMaxRank> shape_{};
  int64_t row_stride_ = 0;
};

}  // namespace quire
