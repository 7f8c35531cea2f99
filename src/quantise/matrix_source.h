#pragma once
// The matrix of one of a checkpoint's linear layers as float32 numbers, however it is stored:
// dense, quantised, or in blocks of a GGUF file.
//
// Thread safety: const use is free.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "loader/checkpoint.h"
#include "loader/quantization_config.h"
#include "loader/stored_matrix.h"

namespace quire {

struct MatrixShape {
  int64_t n = 0;  // outputs
  int64_t k = 0;  // inputs
};

// Of the layer `module`, which is named without ".weight". Throws Error where there is none.
MatrixShape matrix_shape(const Checkpoint& checkpoint,
                         const std::optional<QuantizationConfig>& quantization,
                         const std::string& module);

class MatrixSource {
 public:
  // The checkpoint outlives the object. A quantised matrix is read into memory. Throws Error where
  // the layer's tensors don't fit together.
  MatrixSource(const Checkpoint& checkpoint, const std::optional<QuantizationConfig>& quantization,
               const std::string& module);

  int64_t n() const { return shape_.n; }
  int64_t k() const { return shape_.k; }
  // The layer's tensors in the checkpoint.
  const std::vector<const CheckpointTensor*>& tensors() const { return tensors_; }
  // The numbers, [n, k].
  std::vector<float> read(ThreadPool& pool) const;
  // Those of some rows to out[rows.size(), k].
  void read_rows_to(IndexRange rows, float* out) const;

 private:
  void open_stored(const Checkpoint& checkpoint, const WeightScheme& scheme,
                   const std::string& module);

  MatrixShape shape_;
  std::vector<const CheckpointTensor*> tensors_;
  std::unique_ptr<StoredMatrix> stored_;  // null: the tensor is dense or has blocks
};

// The type of a tensor's numbers; none where quire has none for them. Blocks are read as float32.
std::optional<DType> dtype_of_tensor(const CheckpointTensor& tensor);

// Rows of a dense tensor, or of one with blocks, as float32 to out[rows.size(), columns]. A vector
// has one column.
void read_floats(const CheckpointTensor& tensor, IndexRange rows, float* out);

}  // namespace quire
