#include "quantise/quantise_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "quire/error.h"

namespace quire {
namespace {

// Rows of a copied tensor that are converted at a time.
constexpr int64_t kConvertedNumbers = 1 << 20;

class Quantiser {
 public:
  Quantiser(const WeightsToQuantise& weights, const std::filesystem::path& folder,
            Calibration* calibration, ThreadPool& pool, const QuantiseProgress& progress)
      : weights_(weights),
        calibration_(calibration),
        pool_(pool),
        progress_(progress),
        writer_(folder, weights.plan.written(weights.target)) {}

  std::optional<WrittenWeights> run() {
    for (const CheckpointTensor* tensor : weights_.plan.copied) {
      copy(*tensor);
      if (!advance(tensor->bytes)) return std::nullopt;
      weights_.checkpoint.release(*tensor);
    }
    const std::vector<PlannedMatrix>& matrices = weights_.plan.matrices;
    for (size_t first = 0; first < matrices.size();) {
      size_t end = first + 1;
      while (end < matrices.size() && matrices[end].layer == matrices[first].layer) ++end;
      if (!do_layer(std::span(matrices).subspan(first, end - first))) return std::nullopt;
      first = end;
    }
    writer_.finish();
    return WrittenWeights{.bytes = writer_.total_bytes(),
                          .num_shards = writer_.num_shards(),
                          .squared_error = squares_ > 0 ? errors_ / squares_ : 0};
  }

 private:
  // The matrices of one layer of the decoder, or of none.
  bool do_layer(std::span<const PlannedMatrix> matrices) {
    const bool is_calibrated = calibration_ != nullptr && matrices.front().layer >= 0;
    if (is_calibrated &&
        !calibration_->begin_layer(matrices.front().layer, [this] { return advance(0); })) {
      return false;
    }
    for (const PlannedMatrix& matrix : matrices) {
      do_matrix(matrix, is_calibrated);
      if (!advance(matrix.source_bytes)) return false;
    }
    return !is_calibrated || calibration_->end_layer([this] { return advance(0); });
  }

  void do_matrix(const PlannedMatrix& matrix, bool is_calibrated) {
    const MatrixSource source(weights_.checkpoint, weights_.config.quantization, matrix.module);
    const std::vector<float> values = source.read(pool_);
    for (const CheckpointTensor* tensor : source.tensors()) weights_.checkpoint.release(*tensor);
    if (!matrix.is_rounded) {
      writer_.write(narrow_floats(weights_.target.scale_dtype, values));
      return;
    }
    check_finite(matrix.module, values);
    const RoundedMatrix rounded =
        is_calibrated
            ? calibration_->round(matrix.module, values)
            : round_to_nearest(weights_.target, values, matrix.shape.n, matrix.shape.k, pool_);
    std::vector<float> stands_for(values.size());
    dequantise(weights_.target, rounded, stands_for.data(), pool_);
    if (is_calibrated) calibration_->replace(matrix.module, stands_for);
    add_error(values, stands_for);
    for (const std::vector<std::byte>& bytes : bytes_of_tensors(weights_.target, rounded)) {
      writer_.write(bytes);
    }
  }

  static void check_finite(const std::string& module, const std::vector<float>& values) {
    const auto wrong = std::find_if_not(values.begin(), values.end(),
                                        [](float value) { return std::isfinite(value * value); });
    if (wrong == values.end()) return;
    throw Error(fmt::format("{}: its weight holds {}; expected numbers that can be rounded.",
                            module, *wrong));
  }

  void add_error(const std::vector<float>& values, const std::vector<float>& stands_for) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = static_cast<double>(values[i]) - stands_for[i];
      errors_ += error * error;
      squares_ += static_cast<double>(values[i]) * values[i];
    }
  }

  void copy(const CheckpointTensor& tensor) {
    if (has_plain_numbers(tensor)) return writer_.write({tensor.data, tensor.bytes});
    const int64_t rows = tensor.shape.front();
    const int64_t columns = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
    const int64_t step = std::max<int64_t>(1, kConvertedNumbers / columns);
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t end = std::min(rows, row + step);
      std::vector<float> values(static_cast<size_t>((end - row) * columns));
      read_floats(tensor, {row, end}, values.data());
      writer_.write(narrow_floats(weights_.target.scale_dtype, values));
    }
  }

  bool advance(size_t bytes) {
    done_ += bytes;
    const size_t total = weights_.plan.source_bytes;
    return !progress_ ||
           progress_(static_cast<int64_t>(std::min(done_, total)), static_cast<int64_t>(total));
  }

  const WeightsToQuantise& weights_;
  Calibration* calibration_;
  ThreadPool& pool_;
  const QuantiseProgress& progress_;
  CheckpointWriter writer_;
  size_t done_ = 0;
  double errors_ = 0;
  double squares_ = 0;
};

}  // namespace

std::optional<WrittenWeights> quantise_weights(const WeightsToQuantise& weights,
                                               const std::filesystem::path& folder,
                                               Calibration* calibration, ThreadPool& pool,
                                               const QuantiseProgress& progress) {
  return Quantiser(weights, folder, calibration, pool, progress).run();
}

}  // namespace quire
