#include "engine/lora_product.h"

#include <algorithm>

#include "quantise/matrix_source.h"

namespace quire {
namespace {

std::vector<float> all_floats(const CheckpointTensor& tensor) {
  int64_t count = 1;
  for (const int64_t extent : tensor.shape) count *= extent;
  std::vector<float> values(static_cast<size_t>(count));
  read_floats(tensor, {0, tensor.shape.front()}, values.data());
  return values;
}

// For a matrix [rows, columns].
std::vector<float> transposed(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  std::vector<float> result(matrix.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      result[static_cast<size_t>(column * rows + row)] =
          matrix[static_cast<size_t>(row * columns + column)];
    }
  }
  return result;
}

}  // namespace

LoraProduct::LoraProduct(const LoraModule& module)
    : is_embedding_(module.is_embedding),
      rank_(module.rank),
      scale_(static_cast<float>(module.scale)),
      rows_(is_embedding_ ? module.inputs() : module.outputs()),
      columns_(is_embedding_ ? module.outputs() : module.inputs()),
      left_(all_floats(is_embedding_ ? *module.a : *module.b)),
      right_(all_floats(is_embedding_ ? *module.b : *module.a)) {
  if (is_embedding_) {
    left_ = transposed(left_, rank_, rows_);
    right_ = transposed(right_, columns_, rank_);
  }
  if (module.magnitude != nullptr) magnitudes_ = all_floats(*module.magnitude);
}

void LoraProduct::add_to(IndexRange rows, float* values) const {
  std::vector<float> sums(static_cast<size_t>(columns_));
  for (int64_t row = rows.begin; row < rows.end; ++row, values += columns_) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (int64_t r = 0; r < rank_; ++r) {
      const float factor = left_[static_cast<size_t>(row * rank_ + r)];
      const float* right = right_.data() + r * columns_;
      for (int64_t i = 0; i < columns_; ++i) sums[static_cast<size_t>(i)] += factor * right[i];
    }
    for (int64_t i = 0; i < columns_; ++i) values[i] += scale_ * sums[static_cast<size_t>(i)];
  }
}

}  // namespace quire
