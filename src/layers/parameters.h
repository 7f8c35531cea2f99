#pragma once
// The two kinds of parameter: a matrix in the layout of the device's matrix product, and a float32
// vector.
//
// Thread safety: as Parameter says.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "layers/placement.h"
#include "loader/parameter.h"
#include "ops/weight.h"

namespace quire {

// The format of a matrix. Nothing stands for a dense matrix of the placement's dtype.
using MatrixFormat = std::optional<ops::WeightFormat>;

// A matrix [n, k], zero until loaded: "weight", and "weight_scale" [n, 1] where its format has
// scales. `parts` are those of "weight".
class MatrixParameter final : public Parameter {
 public:
  MatrixParameter(const Placement& place, MatrixFormat format, int64_t n, int64_t k,
                  std::vector<ParameterPart> parts);

  const std::vector<ParameterTensor>& tensors() const override { return tensors_; }
  size_t bytes() const override { return weight_.bytes(); }
  void store(const ParameterSlice& slice) override;

  const ops::Weight& weight() const { return weight_; }

 private:
  ops::Weight weight_;
  std::vector<ParameterTensor> tensors_;
};

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
