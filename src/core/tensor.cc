#include "core/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

namespace quire {

Tensor::Tensor(void* data, DType dtype, std::initializer_list<int64_t> shape)
    : data_(data), dtype_(dtype), rank_(static_cast<int>(shape.size())) {
  check(rank_ >= 1 && rank_ <= kMaxRank, "a tensor has 1 to 4 dimensions");
  int i = 0;
  row_stride_ = 1;
  for (int64_t extent : shape) {
    check(extent >= 0, "a tensor's dimensions are not negative");
    shape_[static_cast<size_t>(i)] = extent;
    if (i > 0) row_stride_ *= extent;
    ++i;
  }
}

int64_t Tensor::num_elements() const {
  int64_t n = rank_ > 0 ? 1 : 0;
  for (int i = 0; i < rank_; ++i) n *= dim(i);
  return n;
}

bool Tensor::contiguous() const {
  return dim(0) <= 1 || row_stride_ * dim(0) == num_elements();
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  check(rank_ >= 1 && 0 <= begin && begin <= end && end <= dim(0), "row range outside the tensor");
  Tensor view = *this;
  view.data_ =
      static_cast<std::byte*>(data_) + static_cast<size_t>(begin * row_stride_) * size_of(dtype_);
  view.shape_[0] = end - begin;
  return view;
}

Tensor Tensor::columns(int64_t begin, int64_t end) const {
  check(rank_ == 2 && 0 <= begin && begin <= end && end <= dim(1),
        "column range outside the matrix");
  Tensor view = *this;
  view.data_ = static_cast<std::byte*>(data_) + static_cast<size_t>(begin) * size_of(dtype_);
  view.shape_[1] = end - begin;
  return view;
}

std::string Tensor::describe() const {
  return fmt::format("{}[{}]", name_of(dtype_),
                     fmt::join(std::span(shape_.data(), static_cast<size_t>(rank_)), ", "));
}

}  // namespace quire
