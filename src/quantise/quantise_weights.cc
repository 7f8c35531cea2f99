#include "quantise/quantise_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loader/checkpoint_writer.h"
#include "loader/tensor_rows.h"
#include "quantise/matrix_source.h"
#include "quire/error.h"

namespace quire {
namespace {

// Bytes of a copied tensor that are written at a time.
constexpr size_t kCopiedBytes = size_t{16} << 20;
// Rows that are in memory as float32 where they are not calibrated.
constexpr int64_t kRowsInFloat = 4096;

// What float8 e4m3 holds at most, and the part of it that the largest magnitude of a calibration
// text gets: other texts have some that are larger, and float8's numbers are as close below.
constexpr float kLargestInCache = 448;
constexpr float kCalibratedShare = 0.5F;

float kv_scale(float largest) {
  return largest > 0 ? largest / (kLargestInCache * kCalibratedShare) : 1;
}

// Squares of differences, over those of the numbers themselves.
class SquaredError {
 public:
  void add(double errors, double squares) {
    errors_ += errors;
    squares_ += squares;
  }
  double relative() const { return squares_ > 0 ? errors_ / squares_ : 0; }

 private:
  double errors_ = 0;
  double squares_ = 0;
};

double squares_of(const std::vector<float>& values) {
  return std::inner_product(values.begin(), values.end(), values.begin(), 0.0, std::plus<>(),
                            [](double a, double b) { return a * b; });
}

// The rows of `from` as those of `to` from first_row on.
void put_rows(const RoundedMatrix& from, int64_t first_row, RoundedMatrix& to) {
  const auto put = [&](const auto& source, auto& target, int64_t columns) {
    std::copy(source.begin(), source.end(), target.begin() + first_row * columns);
  };
  put(from.numbers, to.numbers, to.k);
  put(from.scales, to.scales, to.groups);
  put(from.zero_points, to.zero_points, to.groups);
}

class Quantiser {
 public:
  Quantiser(const WeightsToQuantise& weights, const std::filesystem::path& folder,
            Calibration* calibration, const EndableLoops& loops, const QuantiseProgress& progress)
      : weights_(weights),
        calibration_(calibration),
        loops_(loops),
        progress_(progress),
        writer_(folder, weights.plan.written(weights.dense_dtype)) {}

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
            .squared_error = error_.relative(),
            .squared_output_error = output_error_.relative()};
  }

 private:
  void copy(const CheckpointTensor& tensor) {
    if (tensor.rotary_heads != 0) return copy_in_order(tensor);
    const std::span bytes(tensor.data, tensor.bytes);
    for (size_t begin = 0; begin < bytes.size(); begin += kCopiedBytes) {
      const size_t count = std::min(kCopiedBytes, bytes.size() - begin);
      writer_.write(bytes.subspan(begin, count));
      advance(count);
    }
    weights_.checkpoint.release(tensor);
  }

  // Where a GGUF file has rows in another order than a folder.
  void copy_in_order(const CheckpointTensor& tensor) {
    const int64_t columns = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
    std::vector<std::byte> rows;
    read_rows(tensor, dtype_of_tensor(tensor), {0, tensor.shape.front()}, {0, columns}, rows);
    writer_.write(rows);
    advance(tensor.bytes);
  }

  // The matrices of one layer of the decoder, or of none.
  void do_layer(std::span<const PlannedMatrix> matrices) {
    const bool is_calibrated = calibration_ != nullptr && matrices.front().layer >= 0;
    if (is_calibrated) calibration_->begin_layer(matrices.front().layer);
    for (const PlannedMatrix& matrix : matrices) {
      do_matrix(matrix, is_calibrated);
      advance(matrix.source_bytes);
    }
    if (!is_calibrated) return;
    if (weights_.plan.has_kv_scales) write_kv_scales();
    calibration_->end_layer();
  }

  // Of the layer, whose inputs are real ones, but for its own rounding.
  void write_kv_scales() {
    const KvMagnitudes largest = calibration_->kv_magnitudes();
    for (const float magnitude : {largest.keys, largest.values}) {
      writer_.write(narrow_floats(DType::kFloat32, {kv_scale(magnitude)}));
    }
  }

  void do_matrix(const PlannedMatrix& matrix, bool is_calibrated) {
    const MatrixSource source(weights_.checkpoint, weights_.config.quantization, matrix.module,
                              matrix.shape);
    if (!matrix.rounded_to) {
      for_rows(source, [&](int64_t, const std::vector<float>& values) {
        writer_.write(narrow_floats(weights_.dense_dtype, values));
      });
    } else {
      const RoundedMatrix rounded =
          is_calibrated ? calibrated(matrix, source) : nearest(matrix, source);
      for (const std::vector<std::byte>& bytes : bytes_of_tensors(*matrix.rounded_to, rounded)) {
        writer_.write(bytes);
      }
    }
    for (const CheckpointTensor* tensor : source.tensors()) weights_.checkpoint.release(*tensor);
  }

  // body(first row, values) for some rows after the others.
  template <typename Body>
  void for_rows(const MatrixSource& source, const Body& body) {
    for (int64_t first = 0; first < source.n(); first += kRowsInFloat) {
      body(first, source.read({first, std::min(source.n(), first + kRowsInFloat)}, loops_));
    }
  }

  RoundedMatrix nearest(const PlannedMatrix& matrix, const MatrixSource& source) {
    const RoundingTarget& target = *matrix.rounded_to;
    RoundedMatrix whole(source.n(), source.k(), source.k() / target.group_size(source.k()));
    for_rows(source, [&](int64_t first, const std::vector<float>& values) {
      check_finite(matrix.module, values);
      const int64_t rows = std::ssize(values) / source.k();
      const RoundedMatrix part = round_to_nearest(target, values, rows, source.k(), loops_);
      std::vector<float> stands_for(values.size());
      dequantise(target, part, stands_for.data(), loops_);
      add_error(values, stands_for);
      put_rows(part, first, whole);
    });
    return whole;
  }

  RoundedMatrix calibrated(const PlannedMatrix& matrix, const MatrixSource& source) {
    const std::vector<float> values = source.read({0, source.n()}, loops_);
    check_finite(matrix.module, values);
    const RoundingTarget& target = *matrix.rounded_to;
    const bool by_inputs = target.scheme.is_integer();
    RoundedMatrix rounded = by_inputs
                                ? calibration_->round(matrix.module, values)
                                : round_to_nearest(target, values, source.n(), source.k(), loops_);
    std::vector<float> stands_for(values.size());
    dequantise(target, rounded, stands_for.data(), loops_);
    const std::vector<float> differences = add_error(values, stands_for);
    if (by_inputs) {
      output_error_.add(calibration_->squared_outputs(matrix.module, differences),
                        calibration_->squared_outputs(matrix.module, values));
    }
    calibration_->replace(matrix.module, stands_for);
    return rounded;
  }

  static void check_finite(const std::string& module, const std::vector<float>& values) {
    const auto wrong = std::find_if_not(values.begin(), values.end(),
                                        [](float value) { return std::isfinite(value * value); });
    if (wrong == values.end()) return;
    throw Error(fmt::format("{}: its weight holds {}; expected numbers that can be rounded.",
                            module, *wrong));
  }

  // Returns the differences.
  std::vector<float> add_error(const std::vector<float>& values,
                               const std::vector<float>& stands_for) {
    std::vector<float> differences(values.size());
    std::transform(values.begin(), values.end(), stands_for.begin(), differences.begin(),
                   std::minus<>());
    error_.add(squares_of(differences), squares_of(values));
    return differences;
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
  SquaredError error_;         // of weights
  SquaredError output_error_;  // of outputs for the calibration's text
};

}  // namespace

WrittenWeights quantise_weights(const WeightsToQuantise& weights,
                                const std::filesystem::path& folder, Calibration* calibration,
                                const EndableLoops& loops, const QuantiseProgress& progress) {
  return Quantiser(weights, folder, calibration, loops, progress).run();
}

}  // namespace quire
