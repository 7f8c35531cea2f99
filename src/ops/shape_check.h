#pragma once
// Checks the shapes of an op's arguments, where the op is entered.
//
//   Dim t{"T"}, h{"H"};
//   ShapeCheck("rms_norm").expect("in", in, DType::kFloat32, {&t, &h})
//                         .expect("weight", weight, DType::kFloat32, {&h});
//
// A Dim without a value takes its value from the first tensor; later tensors must agree. A mismatch
// is a programmer error: it aborts, naming the op, the argument, what was expected and what came.
// Thread safety: plain values.
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "core/stream.h"
#include "core/tensor.h"

namespace quire::ops {

struct Dim {
  std::string_view name;
  int64_t value = -1;  // -1: not known yet
};

// The type that all activations of an op must have, given one of them: float32 on the CPU; on a GPU
// the tensor's own, which is a floating-point type of at least 16 bits.
DType activation_dtype(const Stream& stream, const Tensor& tensor);

class ShapeCheck {
 public:
  explicit ShapeCheck(std::string_view op, const CodePlace& where = CodePlace::current())
      : op_(op), where_(where) {}

  ShapeCheck& expect(std::string_view argument, const Tensor& tensor, DType dtype,
                     std::initializer_list<Dim*> dims);
  // As expect(), but the tensor may also be undefined.
  ShapeCheck& expect_optional(std::string_view argument, const Tensor& tensor, DType dtype,
                              std::initializer_list<Dim*> dims);
  // A condition on values rather than on one tensor's shape.
  ShapeCheck& require(bool ok, std::string_view what);

 private:
  std::string_view op_;
  CodePlace where_;
};

}  // namespace quire::ops
