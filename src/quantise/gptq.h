#pragma once
// Rounds a matrix so that its products change least for inputs like those of a calibration text:
// GPTQ (Frantar et al., 2023, https://arxiv.org/abs/2210.17323).
//
// The inputs are rounded one after another. Inputs that are not rounded yet make up for the change
// of the layer's outputs, as far as they can: for inputs X with the Gram matrix H = X^T X, whose
// inverse has the upper Cholesky factor U (H^-1 = U^T U), an error e of input j changes the weight
// of each later input i by -e * U[j, i] / U[j, j].
//
// Thread safety: const use is free; one thread at a time runs the loops.
#include <cstdint>
#include <vector>

#include "quantise/endable_loops.h"
#include "quantise/rounded_matrix.h"

namespace quire {

// The Gram matrix of a layer's inputs, factorised.
class InputFactor {
 public:
  // From the upper triangle of the inputs' Gram matrix [k, k]. A hundredth of its mean diagonal is
  // added to the diagonal, so that few inputs are enough.
  InputFactor(std::vector<float> gram, int64_t k, const EndableLoops& loops);

  int64_t k() const { return k_; }
  // Row j of U; elements before j are not defined.
  const float* row(int64_t j) const { return factor_.data() + j * k_; }
  // Whether input j is zero in all of the text.
  bool is_unused(int64_t j) const { return is_unused_[static_cast<size_t>(j)]; }
  // What was added to the diagonal, > 0.
  float damping() const { return damping_; }

 private:
  void add_damping();
  void factorise(const EndableLoops& loops);
  void invert(const EndableLoops& loops);

  int64_t k_;
  std::vector<float> factor_;
  std::vector<bool> is_unused_;
  float damping_ = 0;
};

// Rounds values [n, factor.k()] to integers. A group's grid fits its weights after the changes by
// earlier groups.
RoundedMatrix round_with_gptq(const RoundingTarget& target, const InputFactor& factor,
                              std::vector<float> values, int64_t n, const EndableLoops& loops);

// The squares of the outputs that weights [n, factor.k()] have for the text's inputs, summed over
// its tokens and over outputs 0, step, 2 * step and so on.
double squared_outputs(const InputFactor& factor, const std::vector<float>& weights, int64_t step,
                       const EndableLoops& loops);

}  // namespace quire
