#include "quantise/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "loader/parameter.h"
#include "ops/cpu/integer_grid.h"
#include "ops/cpu/vector_loops.h"

namespace quire {
namespace {

constexpr float kDamping = 0.01f;
// Rows that share the reading of a row of the factor.
constexpr int64_t kRowsTogether = 16;

}  // namespace

InputFactor::InputFactor(std::vector<float> gram, int64_t k, const EndableLoops& loops)
    : k_(k), factor_(std::move(gram)), is_unused_(static_cast<size_t>(k)) {
  check(std::ssize(factor_) == k * k, "a Gram matrix is square");
  add_damping();
  factorise(loops);
  invert(loops);
}

void InputFactor::add_damping() {
  double sum = 0;
  for (int64_t j = 0; j < k_; ++j) sum += factor_[static_cast<size_t>(j * k_ + j)];
  damping_ = static_cast<float>(sum > 0 ? kDamping * sum / static_cast<double>(k_) : 1);
  for (int64_t j = 0; j < k_; ++j) {
    float& diagonal = factor_[static_cast<size_t>(j * k_ + j)];
    is_unused_[static_cast<size_t>(j)] = diagonal == 0;
    diagonal += damping_;
  }
}

// H = R R^T with R upper triangular, in place, from the last column to the first. With U = R^-1
// that is H^-1 = U^T U. No eigenvalue of H is below what was added to its diagonal, so no square of
// R's diagonal is, but for rounding.
void InputFactor::factorise(const EndableLoops& loops) {
  for (int64_t j = k_ - 1; j >= 0; --j) {
    const float* pivots = row(j) + j + 1;
    const int64_t count = k_ - 1 - j;
    float& diagonal = factor_[static_cast<size_t>(j * k_ + j)];
    diagonal = std::sqrt(std::max(diagonal - ops::dot(pivots, pivots, count), damping_));
    loops.parallel_for(ceil_div(j, kRowsTogether), [&](int64_t task) {
      const int64_t end = std::min(j, (task + 1) * kRowsTogether);
      for (int64_t i = task * kRowsTogether; i < end; ++i) {
        float* element = factor_.data() + i * k_ + j;
        *element = (*element - ops::dot(element + 1, pivots, count)) / diagonal;
      }
    });
  }
}

// U R = 1, row by row, from the diagonal on.
void InputFactor::invert(const EndableLoops& loops) {
  std::vector<float> inverse(factor_.size());
  loops.parallel_for(ceil_div(k_, kRowsTogether), [&](int64_t task) {
    const int64_t first = task * kRowsTogether;
    const int64_t end = std::min(k_, first + kRowsTogether);
    for (int64_t i = first; i < end; ++i) inverse[static_cast<size_t>(i * k_ + i)] = 1;
    for (int64_t m = first; m < k_; ++m) {
      const float* pivots = row(m);
      for (int64_t i = first; i < std::min(end, m + 1); ++i) {
        float* solved = inverse.data() + i * k_;
        solved[m] /= pivots[m];
        ops::add_scaled(-solved[m], pivots + m + 1, k_ - m - 1, solved + m + 1);
      }
    }
  });
  factor_ = std::move(inverse);
}

namespace {

// Rounds some rows, input by input.
class RowRounder {
 public:
  RowRounder(const RoundingTarget& target, const InputFactor& factor, IndexRange rows,
             float* values, RoundedMatrix& matrix)
      : type_(target.integers()),
        factor_(factor),
        rows_(rows),
        values_(values),
        matrix_(matrix),
        group_size_(matrix.k / matrix.groups),
        grids_(static_cast<size_t>(rows.size())) {}

  void round() {
    clear_unused();
    for (int64_t j = 0; j < matrix_.k; ++j) {
      for (int64_t row = rows_.begin; row < rows_.end; ++row) {
        float* weights = values_ + row * matrix_.k;
        if (j % group_size_ == 0) begin_group(row, j / group_size_);
        round_input(row, j, weights);
      }
    }
  }

 private:
  // No group's grid has to reach the weights of inputs that are always 0.
  void clear_unused() {
    for (int64_t j = 0; j < matrix_.k; ++j) {
      if (!factor_.is_unused(j)) continue;
      for (int64_t row = rows_.begin; row < rows_.end; ++row) values_[row * matrix_.k + j] = 0;
    }
  }

  ops::IntegerGrid& grid_of(int64_t row) { return grids_[static_cast<size_t>(row - rows_.begin)]; }

  void begin_group(int64_t row, int64_t group) {
    group_.assign(static_cast<size_t>(round_up(group_size_, int64_t{ops::kGridValues})), 0.0f);
    std::copy_n(values_ + row * matrix_.k + group * group_size_, group_size_, group_.begin());
    const ops::IntegerGrid grid =
        ops::fit_integer_grid(type_, group_.data(), static_cast<int>(group_.size()));
    grid_of(row) = grid;
    const auto at = static_cast<size_t>(row * matrix_.groups + group);
    matrix_.scales[at] = grid.scale;
    matrix_.zero_points[at] = static_cast<int8_t>(grid.zero_point);
  }

  void round_input(int64_t row, int64_t j, float* weights) {
    const ops::IntegerGrid& grid = grid_of(row);
    const float integer = std::clamp(std::nearbyint(weights[j] / grid.scale + grid.zero_point),
                                     type_.lowest(), type_.highest());
    const auto number = static_cast<int8_t>(integer);
    matrix_.numbers[static_cast<size_t>(row * matrix_.k + j)] = number;
    const float* factor = factor_.row(j);
    const float error = (weights[j] - grid.value(number)) / factor[j];
    ops::add_scaled(-error, factor + j + 1, matrix_.k - j - 1, weights + j + 1);
  }

  const ops::IntegerType type_;
  const InputFactor& factor_;
  IndexRange rows_;
  float* values_;
  RoundedMatrix& matrix_;
  int64_t group_size_;
  std::vector<ops::IntegerGrid> grids_;  // of the rows' groups
  std::vector<float> group_;
};

}  // namespace

RoundedMatrix round_with_gptq(const RoundingTarget& target, const InputFactor& factor,
                              std::vector<float> values, int64_t n, const EndableLoops& loops) {
  const int64_t k = factor.k();
  RoundedMatrix matrix(n, k, k / target.group_size(k));
  loops.parallel_for(ceil_div(n, kRowsTogether), [&](int64_t task) {
    const IndexRange rows = {task * kRowsTogether, std::min(n, (task + 1) * kRowsTogether)};
    RowRounder(target, factor, rows, values.data(), matrix).round();
  });
  return matrix;
}

// With H = X^T X and U^T U = (H + damping)^-1 the squares of an output are
//   w H w^T = |y|^2 - damping |w|^2, y U = w.
double squared_outputs(const InputFactor& factor, const std::vector<float>& weights, int64_t step,
                       const EndableLoops& loops) {
  const int64_t k = factor.k();
  const int64_t n = std::ssize(weights) / k;
  std::vector<double> sums(static_cast<size_t>(ceil_div(n, step)));
  loops.parallel_for(std::ssize(sums), [&](int64_t task) {
    const float* const row = weights.data() + task * step * k;
    std::vector<double> left(row, row + k);
    double& sum = sums[static_cast<size_t>(task)];
    for (int64_t j = 0; j < k; ++j) {
      double& value = left[static_cast<size_t>(j)];
      if (factor.is_unused(j)) value -= row[j];
      const float* const pivots = factor.row(j);
      const double solved = value / pivots[j];
      const double weight = factor.is_unused(j) ? 0 : row[j];
      sum += solved * solved - factor.damping() * weight * weight;
      for (int64_t i = j + 1; i < k; ++i) left[static_cast<size_t>(i)] -= solved * pivots[i];
    }
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace quire
