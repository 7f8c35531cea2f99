#include "quantise/rounded_matrix.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/ceil_div.h"
#include "base/check.h"

namespace quire {
namespace {

// Rows that a task rounds.
constexpr int64_t kRowsAtATime = 16;
constexpr float kLargestFloat8 = 448.0f;

void for_row_blocks(int64_t n, const EndableLoops& loops,
                    const std::function<void(int64_t row)>& body) {
  loops.parallel_for(ceil_div(n, kRowsAtATime), [&](int64_t task) {
    const int64_t end = std::min(n, (task + 1) * kRowsAtATime);
    for (int64_t row = task * kRowsAtATime; row < end; ++row) body(row);
  });
}

void round_row_to_integers(const ops::IntegerType& type, const float* values, int64_t row,
                           RoundedMatrix& matrix) {
  const int64_t size = matrix.k / matrix.groups;
  const auto filled = static_cast<int>(round_up(size, int64_t{ops::kGridValues}));
  std::vector<float> group(static_cast<size_t>(filled));
  std::vector<int8_t> integers(group.size());
  for (int64_t g = 0; g < matrix.groups; ++g) {
    std::copy_n(values + g * size, size, group.begin());
    const ops::IntegerGrid grid = ops::fit_integer_grid(type, group.data(), filled);
    ops::round_to_grid(type, grid, group.data(), filled, integers.data());
    std::copy_n(integers.begin(), size, matrix.numbers.begin() + row * matrix.k + g * size);
    const auto at = static_cast<size_t>(row * matrix.groups + g);
    matrix.scales[at] = grid.scale;
    matrix.zero_points[at] = static_cast<int8_t>(grid.zero_point);
  }
}

float rounded_to(DType dtype, float value) {
  if (dtype == DType::kBFloat16) return static_cast<float>(BFloat16(value));
  if (dtype == DType::kFloat16) return static_cast<float>(Float16(value));
  return value;
}

void round_row_to_float8(const RoundingTarget& target, const float* values, int64_t row,
                         RoundedMatrix& matrix) {
  float largest = 0;
  for (int64_t i = 0; i < matrix.k; ++i) largest = std::max(largest, std::abs(values[i]));
  float scale = rounded_to(target.scale_dtype, largest / kLargestFloat8);
  if (!(scale > 0) || !std::isfinite(scale)) scale = 1;
  matrix.scales[static_cast<size_t>(row)] = scale;
  for (int64_t i = 0; i < matrix.k; ++i) {
    matrix.numbers[static_cast<size_t>(row * matrix.k + i)] =
        static_cast<int8_t>(Float8E4M3(values[i] / scale).bits);
  }
}

int64_t groups_of(const RoundingTarget& target, int64_t k) {
  return k / target.group_size(k);
}

template <typename T>
std::vector<std::byte> bytes_of_values(const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  return {bytes, bytes + values.size() * sizeof(T)};
}

// Signed integers [rows, columns] as unsigned ones, packed along the rows or the columns.
std::vector<uint32_t> packed_words(int bits, const std::vector<int8_t>& numbers, int64_t rows,
                                   int64_t columns, bool along_rows) {
  const int64_t per_word = 32 / bits;
  const int64_t word_rows = along_rows ? ceil_div(rows, per_word) : rows;
  const int64_t word_columns = along_rows ? columns : ceil_div(columns, per_word);
  std::vector<uint32_t> words(static_cast<size_t>(word_rows * word_columns));
  const int half = 1 << (bits - 1);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const auto number =
          static_cast<uint32_t>(numbers[static_cast<size_t>(row * columns + column)] + half);
      const int64_t packed = along_rows ? row : column;
      const int64_t word =
          along_rows ? row / per_word * columns + column : row * word_columns + column / per_word;
      words[static_cast<size_t>(word)] |= number << (packed % per_word * bits);
    }
  }
  return words;
}

std::vector<std::byte> bytes_of_leaf(const RoundingTarget& target, const RoundedMatrix& matrix,
                                     LeafRole role) {
  const bool is_packed = target.scheme.is_integer();
  switch (role) {
    case LeafRole::kNumbers:
      if (!is_packed) return bytes_of_values(matrix.numbers);
      return bytes_of_values(
          packed_words(target.scheme.bits, matrix.numbers, matrix.n, matrix.k, false));
    case LeafRole::kScales:
      return narrow_floats(target.scale_dtype, matrix.scales);
    case LeafRole::kZeroPoints:
      return bytes_of_values(
          packed_words(target.scheme.bits, matrix.zero_points, matrix.n, matrix.groups, true));
    case LeafRole::kShape:
      return bytes_of_values(std::vector<int64_t>{matrix.n, matrix.k});
    case LeafRole::kGroupOfInput:
      break;
  }
  check(false, "inputs are in the order of their groups");
  return {};
}

DType dtype_of_leaf(const RoundingTarget& target, const SchemeLeaf& leaf) {
  return leaf.role == LeafRole::kScales ? target.scale_dtype : leaf.dtypes.front();
}

}  // namespace

bool RoundingTarget::can_store(int64_t k) const {
  if (!scheme.is_integer()) return true;
  return k % group_size(k) == 0 && k % (32 / scheme.bits) == 0;
}

DType scale_dtype_for(DType model) {
  return model == DType::kFloat16 ? DType::kBFloat16 : model;
}

RoundedMatrix::RoundedMatrix(int64_t outputs, int64_t inputs, int64_t num_groups)
    : n(outputs),
      k(inputs),
      groups(num_groups),
      numbers(static_cast<size_t>(n * k)),
      scales(static_cast<size_t>(n * groups)),
      zero_points(scales.size()) {}

RoundedMatrix round_to_nearest(const RoundingTarget& target, const std::vector<float>& values,
                               int64_t n, int64_t k, const EndableLoops& loops) {
  RoundedMatrix matrix(n, k, groups_of(target, k));
  for_row_blocks(n, loops, [&](int64_t row) {
    if (target.scheme.is_integer()) {
      round_row_to_integers(target.integers(), values.data() + row * k, row, matrix);
    } else {
      round_row_to_float8(target, values.data() + row * k, row, matrix);
    }
  });
  return matrix;
}

void dequantise(const RoundingTarget& target, const RoundedMatrix& matrix, float* out,
                const EndableLoops& loops) {
  const int64_t size = matrix.k / matrix.groups;
  for_row_blocks(matrix.n, loops, [&](int64_t row) {
    for (int64_t i = 0; i < matrix.k; ++i) {
      const auto at = static_cast<size_t>(row * matrix.k + i);
      const auto group = static_cast<size_t>(row * matrix.groups + i / size);
      if (target.scheme.is_integer()) {
        const ops::IntegerGrid grid = {matrix.scales[group],
                                       static_cast<float>(matrix.zero_points[group])};
        out[at] = grid.value(matrix.numbers[at]);
      } else {
        Float8E4M3 number;
        number.bits = static_cast<uint8_t>(matrix.numbers[at]);
        out[at] = static_cast<float>(number) * matrix.scales[group];
      }
    }
  });
}

std::vector<WrittenTensor> tensors_of(const RoundingTarget& target, const std::string& module,
                                      int64_t n, int64_t k) {
  std::vector<WrittenTensor> tensors;
  for (const SchemeLeaf& leaf : leaves_of(target.scheme, module, n, k)) {
    const DType dtype = dtype_of_leaf(target, leaf);
    std::vector<int64_t> shape = {leaf.rows.extent(n, k)};
    if (!leaf.is_vector) shape.push_back(leaf.columns.extent(n, k));
    size_t bytes = size_of(dtype);
    for (const int64_t extent : shape) bytes *= static_cast<size_t>(extent);
    tensors.push_back({module + "." + leaf.name, safetensors_name(dtype), std::move(shape), bytes});
  }
  return tensors;
}

std::vector<std::vector<std::byte>> bytes_of_tensors(const RoundingTarget& target,
                                                     const RoundedMatrix& matrix) {
  std::vector<std::vector<std::byte>> bytes;
  for (const SchemeLeaf& leaf : leaves_of(target.scheme, "", matrix.n, matrix.k)) {
    bytes.push_back(bytes_of_leaf(target, matrix, leaf.role));
  }
  return bytes;
}

std::vector<std::byte> narrow_floats(DType dtype, const std::vector<float>& values) {
  if (dtype == DType::kBFloat16) {
    return bytes_of_values(std::vector<BFloat16>(values.begin(), values.end()));
  }
  if (dtype == DType::kFloat16) {
    return bytes_of_values(std::vector<Float16>(values.begin(), values.end()));
  }
  return bytes_of_values(values);
}

std::string safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kBFloat16:
      return "BF16";
    case DType::kFloat16:
      return "F16";
    case DType::kInt32:
      return "I32";
    case DType::kInt64:
      return "I64";
    case DType::kUInt8:
      return "U8";
    case DType::kInt8:
      return "I8";
    case DType::kFloat8E4M3:
      return "F8_E4M3";
    case DType::kFloat8E5M2:
      return "F8_E5M2";
  }
  return "";
}

}  // namespace quire
