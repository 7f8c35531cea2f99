#pragma once
// The two kinds of parameter: a matrix in the layout of the device's matrix product, and a float32
// vector.
//
// Thread safety: as Parameter says.
#include <cstddef>
#include <vector>

#include "core/buffer.h"
#include "layers/placement.h"
#include "loader/parameter.h"
#include "ops/weight.h"

namespace quire {

// A matrix [n, k], zero until loaded.
class MatrixParameter final : public Parameter {
 public:
  MatrixParameter(const Placement& place, int64_t n, int64_t k, std::vector<ParameterPart> parts)
      : weight_(place.dtype, n, k, place.device), parts_(std::move(parts)) {}

  const std::vector<ParameterPart>& parts() const override { return parts_; }
  size_t bytes() const override { return weight_.bytes(); }
  void store(int64_t first_row, const Tensor& source) override {
    weight_.pack_rows(first_row, source);
  }

  const ops::Weight& weight() const { return weight_; }

 private:
  ops::Weight weight_;
  std::vector<ParameterPart> parts_;
};

// A vector [n], float32 whatever the dtype of the matrices: it costs nothing and loses nothing.
// Zero until loaded.
class VectorParameter final : public Parameter {
 public:
  VectorParameter(const Placement& place, int64_t n, DummyInit init,
                  std::vector<ParameterPart> parts);

  const std::vector<ParameterPart>& parts() const override { return parts_; }
  DummyInit dummy_init() const override { return init_; }
  size_t bytes() const override { return buffer_.size(); }
  void store(int64_t first_row, const Tensor& source) override;

  const Tensor& tensor() const { return tensor_; }

 private:
  Device device_;
  Buffer buffer_;
  Tensor tensor_;
  DummyInit init_;
  std::vector<ParameterPart> parts_;
};

}  // namespace quire
