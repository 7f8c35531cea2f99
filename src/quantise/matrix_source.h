#pragma once
// The matrix of one of a checkpoint's linear layers as float32 numbers, be it stored dense or
// quantised, in a folder or in a GGUF file.
//
// Thread safety: const use is free.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "loader/checkpoint.h"
#include "loader/parameter.h"
#include "loader/quantization_config.h"
#include "loader/stored_matrix.h"
#include "loader/weight_scheme.h"
#include "quantise/endable_loops.h"

namespace quire {

struct MatrixShape {
  int64_t n = 0;  // outputs
  int64_t k = 0;  // inputs
};

class MatrixSource {
 public:
  // The matrix of the layer `module`, named without ".weight", with this shape. The checkpoint must
  // outlive the object. A quantised matrix is read into memory. Throws Error where the layer's
  // tensors don't fit together.
  MatrixSource(const Checkpoint& checkpoint, const std::optional<QuantizationConfig>& quantization,
               const std::string& module, MatrixShape shape);

  int64_t n() const { return shape_.n; }
  int64_t k() const { return shape_.k; }
  // The layer's tensors in the checkpoint.
  const std::vector<const CheckpointTensor*>& tensors() const { return tensors_; }
  // The numbers of some rows, [rows.size(), k].
  std::vector<float> read(IndexRange rows, const EndableLoops& loops) const;
  // The same to `out`.
  void read_rows_to(IndexRange rows, float* out) const;

 private:
  void open_stored(const Checkpoint& checkpoint, const WeightScheme& scheme,
                   const std::string& module);

  MatrixShape shape_;
  std::vector<const CheckpointTensor*> tensors_;
  std::unique_ptr<StoredMatrix> stored_;  // null: one tensor, dense or of a GGUF file's blocks
};

// The type that a tensor's numbers are read as, which is one that a model's parameters have.
DType dtype_of_tensor(const CheckpointTensor& tensor);

// Rows of a tensor that is dense, or a GGUF file's blocks, as float32 to out[rows.size(), columns].
// A vector has one column.
void read_floats(const CheckpointTensor& tensor, IndexRange rows, float* out);

}  // namespace quire
