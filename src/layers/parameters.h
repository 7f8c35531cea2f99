#pragma once
// The two kinds of parameter: a matrix in the layout of the device's matrix product, and a float32
// vector.
//
// Thread safety: as Parameter says.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "layers/placement.h"
#include "layers/stored_weight.h"
#include "loader/parameter.h"
#include "loader/stored_matrix.h"
#include "ops/weight.h"

namespace quire {

// How a checkpoint stores a matrix. No modules: dense. Otherwise one module for each part of the
// matrix, or one for all parts; their schemes have the same leaves.
struct MatrixFormat {
  std::vector<StoredModule> modules = {};

  bool is_dense() const { return modules.empty(); }
  // Whether its modules are blocks of a GGUF file.
  bool is_gguf() const { return !is_dense() && modules.front().scheme.block_type != nullptr; }
};

// A matrix [n, k], zero until loaded; `parts` are those of a dense "weight".
//
// A dense one has the placement's dtype. Where the placement says so, rows are rounded as they come
// (also those of a GGUF file's blocks), unless the device has no product for the result: on the CPU
// to integers in groups of 32 inputs, whose products round activations to int8 except with dtype
// float32; on a GPU to integers in groups of 128; or to float8.
//
// The format of a quantised one follows from its scheme and the device (stored_weight.h). If it is
// float8 like the scheme, numbers are packed as they come; on the CPU so are a GGUF file's blocks,
// and each part may have its own type. Everything else is kept in host memory until all has come,
// and then packed. If integers then do not fit the format that their scheme promised, the weight
// becomes a dense one of the placement's dtype. A GPU has room for that only where several modules
// with act-order are one matrix; otherwise it is an Error.
class MatrixParameter final : public Parameter {
 public:
  // Throws Error where the format's schemes cannot store the parts.
  MatrixParameter(const Placement& place, const MatrixFormat& format, int64_t n, int64_t k,
                  std::vector<ParameterPart> parts);

  const std::vector<ParameterTensor>& tensors() const override { return tensors_; }
  size_t bytes() const override { return weight_.bytes(); }
  void store(const ParameterSlice& slice) override;
  void finish(ThreadPool& pool) override;

  const ops::Weight& weight() const { return weight_; }
  // "GPTQ, 4 bits, groups of 128", "GGUF Q4_K and Q6_K" where the stored format is not the one that
  // is computed with; else empty.
  const std::string& stored_as() const { return stored_as_; }

 private:
  // A part of the matrix as it came, and where its rows go.
  struct StoredPart {
    std::unique_ptr<StoredMatrix> matrix;
    int64_t first_row = 0;
  };

  // On a GPU, whose memory is planned before the checkpoint is read.
  void reserve_permutation(const MatrixFormat& format);
  bool needs_whole_groups() const;
  // For integers that do not fit the weight's format.
  void make_dense();
  void make_stored_parts(const MatrixFormat& format, const std::vector<ParameterPart>& parts);
  void make_tensors();
  // The part that has this row of the tensor.
  size_t part_of(const ParameterSlice& slice) const;
  void pack(const ParameterSlice& slice);
  // Stores the part's share of the matrix from one of several tensors.
  void store_part(const ParameterSlice& slice);

  Placement place_;
  ops::Weight weight_;
  bool has_room_for_dense_ = false;  // on a GPU
  std::vector<StoredPart> stored_;   // none: rows are packed as they come
  std::vector<ParameterTensor> tensors_;
  std::string stored_as_;
};

// The numbers of a column [n, 1] of float32, bfloat16 or float16.
void copy_values(const Tensor& source, float* out);

// A vector [n], zero until loaded. It is float32 whatever the dtype of the matrices: vectors are
// small, and nothing is rounded.
class VectorParameter final : public Parameter {
 public:
  VectorParameter(const Placement& place, std::string leaf, int64_t n, DummyInit init,
                  std::vector<ParameterPart> parts);

  const std::vector<ParameterTensor>& tensors() const override { return tensors_; }
  size_t bytes() const override { return buffer_.size(); }
  void store(const ParameterSlice& slice) override;

  const Tensor& tensor() const { return tensor_; }

 private:
  Device device_;
  Buffer buffer_;
  Tensor tensor_;
  std::vector<ParameterTensor> tensors_;
};

}  // namespace quire
