#include "quantise/quantise_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loader/checkpoint_writer.h"
#include "quantise/matrix_source.h"
#include "quire/error.h"

namespace quire {
namespace {

// Bytes of a copied tensor that are written at a time.
constexpr size_t kCopiedBytes = size_t{16} << 20;

class Quantiser {
 public:
  Quantiser(const WeightsToQuantise& weights, const std::filesystem::path& folder,
            Calibration* calibration, const EndableLoops& loops, const QuantiseProgress& progress)
      : weights_(weights),
        calibration_(calibration),
        loops_(loops),
        progress_(progress),
        writer_(folder, weights.plan.written(weights.target)) {}

  WrittenWeights run() {
    for (const CheckpointTensor* tensor : weights_.plan.copied) copy(*tensor);
    const std::vector<PlannedMatrix>& matrices = weights_.plan.matrices;
    for (size_t first = 0; first < matrices.size();) {
      size_t end = first + 1;
      while (end < matrices.size() && matrices[end].layer == matrices[first].layer) ++end;
      do_layer(std::span(matrices).subspan(first, end - first));
      first = end;
    }
    writer_.finish();
    return {.bytes = writer_.total_bytes(),
            .num_shards = writer_.num_shards(),
            .squared_error = squares_ > 0 ? errors_ / squares_ : 0};
  }

 private:
  void copy(const CheckpointTensor& tensor) {
    const std::span bytes(tensor.data, tensor.bytes);
    for (size_t begin = 0; begin < bytes.size(); begin += kCopiedBytes) {
      const size_t count = std::min(kCopiedBytes, bytes.size() - begin);
      writer_.write(bytes.subspan(begin, count));
      advance(count);
    }
    weights_.checkpoint.release(tensor);
  }

  // The matrices of one layer of the decoder, or of none.
  void do_layer(std::span<const PlannedMatrix> matrices) {
    const bool is_calibrated = calibration_ != nullptr && matrices.front().layer >= 0;
    if (is_calibrated) calibration_->begin_layer(matrices.front().layer);
    for (const PlannedMatrix& matrix : matrices) {
      do_matrix(matrix, is_calibrated);
      advance(matrix.source_bytes);
    }
    if (is_calibrated) calibration_->end_layer();
  }

  void do_matrix(const PlannedMatrix& matrix, bool is_calibrated) {
    const MatrixSource source(weights_.checkpoint, weights_.config.quantization, matrix.module,
                              matrix.shape);
    const std::vector<float> values = source.read(loops_);
    for (const CheckpointTensor* tensor : source.tensors()) weights_.checkpoint.release(*tensor);
    if (!matrix.is_rounded) {
      writer_.write(narrow_floats(weights_.target.dense_dtype, values));
      return;
    }
    check_finite(matrix.module, values);
    const RoundedMatrix rounded =
        is_calibrated
            ? calibration_->round(matrix.module, values)
            : round_to_nearest(weights_.target, values, matrix.shape.n, matrix.shape.k, loops_);
    std::vector<float> stands_for(values.size());
    dequantise(weights_.target, rounded, stands_for.data(), loops_);
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

  void advance(size_t bytes) {
    progress_(bytes);
    loops_.check_point();
  }

  const WeightsToQuantise& weights_;
  Calibration* calibration_;
  const EndableLoops& loops_;
  const QuantiseProgress& progress_;
  CheckpointWriter writer_;
  double errors_ = 0;
  double squares_ = 0;
};

}  // namespace

WrittenWeights quantise_weights(const WeightsToQuantise& weights,
                                const std::filesystem::path& folder, Calibration* calibration,
                                const EndableLoops& loops, const QuantiseProgress& progress) {
  return Quantiser(weights, folder, calibration, loops, progress).run();
}

}  // namespace quire
