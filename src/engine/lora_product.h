#pragma once
// What an adapter adds to the matrix of one module, in float32.
//
// Each sum runs over the adapter's rank in order, so results do not depend on how rows are grouped.
// Thread safety: const use is free.
#include <cstdint>
#include <vector>

#include "loader/lora_adapter.h"
#include "loader/parameter.h"

namespace quire {

// scale * B A, or its transpose for an embedding: a matrix [rows, columns] like the module's
// weight.
class LoraProduct {
 public:
  explicit LoraProduct(const LoraModule& module);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  bool is_embedding() const { return is_embedding_; }
  // Adds the product's rows to values[rows.size(), columns()].
  void add_to(IndexRange rows, float* values) const;
  // DoRA's magnitudes: norms of a linear layer's rows, or of an embedding's columns. Empty for
  // LoRA.
  const std::vector<float>& magnitudes() const { return magnitudes_; }

 private:
  bool is_embedding_;
  int64_t rank_;
  float scale_;
  int64_t rows_;
  int64_t columns_;
  std::vector<float> left_;   // [rows, rank]
  std::vector<float> right_;  // [rank, columns]
  std::vector<float> magnitudes_;
};

}  // namespace quire
