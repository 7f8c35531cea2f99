#pragma once
// What a linear layer multiplies: activations, which the layer before it may have rounded for the
// product already (ops/linear.h).
//
// Thread safety: a value of the rank's worker.
#include "core/tensor.h"
#include "ops/float8_activations.h"

namespace quire {

struct LinearInput {
  LinearInput(const Tensor& activations)  // NOLINT(google-explicit-constructor)
      : x(activations) {}

  Tensor x;        // [T, k]; with `rounded`, room for them that holds anything
  Tensor scratch;  // of the product; undefined: the layer takes its own
  // Before it is made: where the layer that makes it may put it. That layer clears it where it
  // leaves it to the product to round x.
  ops::Float8Activations rounded;
};

}  // namespace quire
