#include "loader/stored_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"

namespace quire {
namespace {

// The nibble of a word that has the word's output i: AWQ's kernels unpack outputs 0, 2, 4 and 6
// from its lower half.
constexpr std::array<int, 8> kAwqNibble{0, 4, 1, 5, 2, 6, 3, 7};

// Of unsigned packed numbers, which are taken down to be signed.
int half_range(int bits) {
  return 1 << (bits - 1);
}

// Number `place` of a word, signed.
int number_at(uint32_t word, int place, int bits) {
  const uint32_t mask = (uint32_t{1} << bits) - 1;
  return static_cast<int>(word >> (place * bits) & mask) - half_range(bits);
}

// 1 in each number of a word: what GPTQ's first version takes from the zero points.
uint32_t one_each(int bits) {
  return bits == 4 ? 0x11111111u : 0x01010101u;
}

}  // namespace

StoredMatrix::StoredMatrix(WeightScheme scheme, StoredShare share)
    : scheme_(std::move(scheme)),
      share_(std::move(share)),
      leaves_(leaves_of(scheme_, share_.module, share_.n, share_.k)),
      pieces_(leaves_.size()) {
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const ParameterPart own = part(i);
    pieces_[i].rows = own.rows;
    pieces_[i].columns = own.columns;
  }
}

ParameterPart StoredMatrix::part(size_t leaf) const {
  const LeafAxis& rows = leaves_[leaf].rows;
  const LeafAxis& columns = leaves_[leaf].columns;
  ParameterPart part;
  part.shape.push_back(rows.extent(share_.n, share_.k));
  if (!leaves_[leaf].is_vector) part.shape.push_back(columns.extent(share_.n, share_.k));
  part.integers = integer_rule(leaf);
  // A shard that is all padding.
  if (share_.outputs.size() == 0 || share_.inputs.size() == 0) return part;
  part.rows = rows.share(share_.n, share_.k, share_.outputs, share_.inputs);
  part.columns = columns.share(share_.n, share_.k, share_.outputs, share_.inputs);
  return part;
}

void StoredMatrix::store(size_t leaf, int64_t first_row, const Tensor& source, bool is_kept) {
  Piece& piece = pieces_[leaf];
  const auto element = static_cast<int64_t>(size_of(source.dtype()));
  const auto row_bytes = static_cast<size_t>(piece.columns.size() * element);
  check(source.dim(1) == piece.columns.size() && first_row + source.dim(0) <= piece.rows.size(),
        "what is stored lies inside the rank's share");
  const auto* from = static_cast<const std::byte*>(source.raw());
  {
    const std::lock_guard lock(mutex_);
    if (!piece.is_stored()) {
      piece.dtype = source.dtype();
      piece.row_stride = is_kept ? source.row_stride() : piece.columns.size();
      if (!is_kept) piece.copied.resize(static_cast<size_t>(piece.rows.size()) * row_bytes);
      piece.data = is_kept ? from - first_row * source.row_stride() * element : piece.copied.data();
    }
  }
  check(piece.dtype == source.dtype(), "a leaf is of one type");
  if (is_kept) {
    check(piece.data + first_row * piece.row_stride * element == from, "a leaf is one array");
    return;
  }
  std::byte* to = piece.copied.data() + static_cast<size_t>(first_row) * row_bytes;
  for (int64_t row = 0; row < source.dim(0); ++row, to += row_bytes) {
    std::memcpy(to, from + row * source.row_stride() * element, row_bytes);
  }
}

void StoredMatrix::free() {
  for (Piece& piece : pieces_) {
    piece.copied = {};
    piece.data = nullptr;
  }
  group_of_input_ = {};
}

template <typename T>
const T* StoredMatrix::Piece::at(int64_t row, int64_t column) const {
  return reinterpret_cast<const T*>(data) + (row - rows.begin) * row_stride +
         (column - columns.begin);
}

template <typename T>
bool StoredMatrix::Piece::is_all(T value) const {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* const values = at<T>(row, columns.begin);
    if (std::any_of(values, values + columns.size(), [value](T each) { return each != value; })) {
      return false;
    }
  }
  return true;
}

float StoredMatrix::Piece::float_at(int64_t row, int64_t column) const {
  switch (dtype) {
    case DType::kBFloat16:
      return static_cast<float>(*at<BFloat16>(row, column));
    case DType::kFloat16:
      return static_cast<float>(*at<Float16>(row, column));
    default:
      return *at<float>(row, column);
  }
}

void StoredMatrix::Piece::widen_row(int64_t row, float* out) const {
  const auto widen = [&](const auto* values) {
    for (int64_t i = 0; i < columns.size(); ++i) out[i] = static_cast<float>(values[i]);
  };
  switch (dtype) {
    case DType::kBFloat16:
      return widen(at<BFloat16>(row, columns.begin));
    case DType::kFloat16:
      return widen(at<Float16>(row, columns.begin));
    default:
      return widen(at<float>(row, columns.begin));
  }
}

const StoredMatrix::Piece* StoredMatrix::find(LeafRole role) const {
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (leaves_[i].role == role && pieces_[i].is_stored()) return &pieces_[i];
  }
  return nullptr;
}

const StoredMatrix::Piece& StoredMatrix::required(LeafRole role) const {
  const Piece* piece = find(role);
  check(piece != nullptr, "the loader stores every tensor that is not optional");
  return *piece;
}

int64_t StoredMatrix::num_groups() const {
  return scheme_.group_inputs == 0 ? 1 : ceil_div(share_.k, scheme_.group_inputs);
}

IntegerRule StoredMatrix::integer_rule(size_t leaf) const {
  switch (leaves_[leaf].role) {
    case LeafRole::kGroupOfInput:
      return {.num_groups = num_groups(), .may_be_unset = scheme_.layout == WeightLayout::kPacked};
    case LeafRole::kShape:
      return {.shape = {share_.module_outputs == 0 ? share_.n : share_.module_outputs, share_.k}};
    default:
      return {};
  }
}

void StoredMatrix::set_groups() {
  const Piece* order = find(LeafRole::kGroupOfInput);
  if (order == nullptr) {
    set_groups_in_order();
  } else {
    set_groups_from(*order);
  }
}

void StoredMatrix::set_groups_in_order() {
  const int64_t size = scheme_.group_inputs == 0 ? share_.k : scheme_.group_inputs;
  group_of_input_.resize(static_cast<size_t>(share_.inputs.size()));
  for (int64_t j = 0; j < share_.inputs.size(); ++j) {
    group_of_input_[static_cast<size_t>(j)] =
        static_cast<int32_t>((share_.inputs.begin + j) / size);
  }
}

void StoredMatrix::set_groups_from(const Piece& group_of_input) {
  const IndexRange& inputs = share_.inputs;
  const int32_t* groups = group_of_input.at<int32_t>(inputs.begin, 0);
  // compressed-tensors' sign of inputs that are in the order of their groups.
  if (scheme_.layout == WeightLayout::kPacked &&
      std::all_of(groups, groups + inputs.size(), [](int32_t group) { return group == -1; })) {
    return set_groups_in_order();
  }
  check(std::all_of(groups, groups + inputs.size(),
                    [this](int32_t group) { return group >= 0 && group < num_groups(); }),
        "the loader checks groups before it stores them");
  group_of_input_.assign(groups, groups + inputs.size());
}

void StoredMatrix::dequantise(IndexRange rows, float* out) const {
  if (scheme_.is_integer()) {
    dequantise_integers(rows, out);
  } else {
    dequantise_float8(rows, out);
  }
}

void StoredMatrix::dequantise_integers(IndexRange rows, float* out) const {
  const int64_t k = share_.inputs.size();
  const int64_t groups = num_groups();
  std::vector<int8_t> numbers(static_cast<size_t>(rows.size() * k));
  std::vector<float> scales(static_cast<size_t>(rows.size() * groups));
  std::vector<float> zeros(scales.size());
  decode_numbers(rows, numbers.data());
  decode_scales(rows, scales.data(), zeros.data());
  for (int64_t row = 0; row < rows.size(); ++row) {
    const int8_t* number = numbers.data() + row * k;
    const float* scale = scales.data() + row * groups;
    const float* zero = zeros.data() + row * groups;
    for (int64_t j = 0; j < k; ++j) {
      const int32_t group = group_of_input_[static_cast<size_t>(j)];
      *out++ = scale[group] * (static_cast<float>(number[j]) - zero[group]);
    }
  }
}

void StoredMatrix::dequantise_float8(IndexRange rows, float* out) const {
  const Piece& numbers = required(LeafRole::kNumbers);
  const Piece& scales = required(LeafRole::kScales);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t output = share_.outputs.begin + row;
    const auto* number = numbers.at<Float8E4M3>(output, share_.inputs.begin);
    const int64_t scale_row = scheme_.group_outputs == 0 ? 0 : output / scheme_.group_outputs;
    for (const int32_t group : group_of_input_) {
      *out++ = static_cast<float>(*number++) * scales.float_at(scale_row, group);
    }
  }
}

std::vector<float> StoredMatrix::output_scales() const {
  check(scheme_.layout == WeightLayout::kFloat8 && scheme_.group_inputs == 0,
        "a row has one scale");
  const Piece& stored = required(LeafRole::kScales);
  std::vector<float> scales;
  for (int64_t output = share_.outputs.begin; output < share_.outputs.end; ++output) {
    const int64_t row = scheme_.group_outputs == 0 ? 0 : output / scheme_.group_outputs;
    scales.push_back(stored.float_at(row, 0));
  }
  return scales;
}

std::vector<float> StoredMatrix::block_scales() const {
  const int64_t outputs = scheme_.group_outputs;
  const int64_t inputs = scheme_.group_inputs;
  check(scheme_.layout == WeightLayout::kFloat8 && outputs > 0 && inputs > 0 &&
            share_.outputs.begin % outputs == 0 && share_.inputs.begin % inputs == 0,
        "the rank's share begins with a block");
  const Piece& stored = required(LeafRole::kScales);
  std::vector<float> scales;
  for (int64_t output = share_.outputs.begin; output < share_.outputs.end; output += outputs) {
    for (int64_t input = share_.inputs.begin; input < share_.inputs.end; input += inputs) {
      scales.push_back(stored.float_at(output / outputs, input / inputs));
    }
  }
  return scales;
}

void StoredMatrix::decode_numbers(IndexRange rows, int8_t* numbers) const {
  const IndexRange outputs{share_.outputs.begin + rows.begin, share_.outputs.begin + rows.end};
  switch (scheme_.layout) {
    case WeightLayout::kGptq:
      return decode_gptq(outputs, numbers);
    case WeightLayout::kAwq:
      return decode_awq(outputs, numbers);
    default:
      return decode_rows(outputs, numbers);
  }
}

// Word by word, as those of neighbouring outputs follow each other.
void StoredMatrix::decode_gptq(IndexRange outputs, int8_t* numbers) const {
  const Piece& words = required(LeafRole::kNumbers);
  const int64_t k = share_.inputs.size();
  const int64_t per_word = 32 / scheme_.bits;
  for (int64_t word_row = words.rows.begin; word_row < words.rows.end; ++word_row) {
    // The first and the last word may have inputs that are not the rank's.
    const int64_t first_input = word_row * per_word - share_.inputs.begin;
    const auto begin = static_cast<int>(std::max<int64_t>(0, -first_input));
    const auto end = static_cast<int>(std::min(per_word, k - first_input));
    const uint32_t* word = words.at<uint32_t>(word_row, outputs.begin);
    for (int64_t i = 0; i < outputs.size(); ++i, ++word) {
      for (int place = begin; place < end; ++place) {
        numbers[i * k + first_input + place] =
            static_cast<int8_t>(number_at(*word, place, scheme_.bits));
      }
    }
  }
}

void StoredMatrix::decode_awq(IndexRange outputs, int8_t* numbers) const {
  constexpr int64_t kPerWord = 8;
  const Piece& words = required(LeafRole::kNumbers);
  const int64_t k = share_.inputs.size();
  for (int64_t j = 0; j < k; ++j) {
    const uint32_t* row = words.at<uint32_t>(share_.inputs.begin + j, words.columns.begin);
    for (int64_t i = outputs.begin; i < outputs.end; ++i) {
      const uint32_t word = row[i / kPerWord - words.columns.begin];
      const int nibble = kAwqNibble[static_cast<size_t>(i % kPerWord)];
      numbers[(i - outputs.begin) * k + j] = static_cast<int8_t>(number_at(word, nibble, 4));
    }
  }
}

void StoredMatrix::decode_rows(IndexRange outputs, int8_t* numbers) const {
  const Piece& stored = required(LeafRole::kNumbers);
  const IndexRange& inputs = share_.inputs;
  const int64_t per_word = 32 / scheme_.bits;
  for (int64_t i = outputs.begin; i < outputs.end; ++i, numbers += inputs.size()) {
    if (scheme_.layout == WeightLayout::kInt8) {
      std::copy_n(stored.at<int8_t>(i, inputs.begin), inputs.size(), numbers);
      continue;
    }
    const uint32_t* words = stored.at<uint32_t>(i, stored.columns.begin);
    for (int64_t j = inputs.begin; j < inputs.end; ++j) {
      const uint32_t word = words[j / per_word - stored.columns.begin];
      numbers[j - inputs.begin] =
          static_cast<int8_t>(number_at(word, static_cast<int>(j % per_word), scheme_.bits));
    }
  }
}

StoredMatrix::PackedRows StoredMatrix::packed_rows(int64_t first_row) const {
  const int64_t per_word = 32 / scheme_.bits;
  if (scheme_.layout != WeightLayout::kPacked || share_.inputs.begin % per_word != 0) return {};
  const Piece& stored = required(LeafRole::kNumbers);
  return {stored.at<uint32_t>(share_.outputs.begin + first_row, share_.inputs.begin / per_word),
          stored.row_stride};
}

// Row by row: the leaves have the scales of an output side by side, and so the words that hold its
// zero points.
void StoredMatrix::decode_packed_scales(IndexRange rows, float* scales, float* zeros) const {
  const Piece& stored = required(LeafRole::kScales);
  const Piece* const zero_points = find(LeafRole::kZeroPoints);
  const int64_t groups = num_groups();
  const int64_t per_word = 32 / scheme_.bits;
  const uint32_t mask = (uint32_t{1} << scheme_.bits) - 1;
  const int half = half_range(scheme_.bits);
  for (int64_t row = rows.begin; row < rows.end; ++row, scales += groups, zeros += groups) {
    const int64_t output = share_.outputs.begin + row;
    stored.widen_row(output, scales);
    if (zero_points == nullptr) {
      std::fill_n(zeros, groups, 0.0f);
      continue;
    }
    const uint32_t* const words = zero_points->at<uint32_t>(output / per_word, 0);
    const auto shift = static_cast<int>(output % per_word) * scheme_.bits;
    for (int64_t group = 0; group < groups; ++group) {
      zeros[group] = static_cast<float>(static_cast<int>(words[group] >> shift & mask) - half);
    }
  }
}

void StoredMatrix::decode_scales(IndexRange rows, float* scales, float* zeros) const {
  // Of packed layouts whose ranks take all groups of an output.
  if (scheme_.layout == WeightLayout::kPacked && scheme_.group_outputs == 1 &&
      required(LeafRole::kScales).columns == IndexRange{0, num_groups()}) {
    return decode_packed_scales(rows, scales, zeros);
  }
  const Piece& stored = required(LeafRole::kScales);
  const Piece* zero_points = find(LeafRole::kZeroPoints);
  const bool is_transposed =
      scheme_.layout == WeightLayout::kGptq || scheme_.layout == WeightLayout::kAwq;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t output = share_.outputs.begin + row;
    const int64_t scale_row = scheme_.group_outputs == 0 ? 0 : output / scheme_.group_outputs;
    for (int64_t group = 0; group < num_groups(); ++group) {
      *scales++ =
          is_transposed ? stored.float_at(group, output) : stored.float_at(scale_row, group);
      *zeros++ = zero_points == nullptr ? 0.0f : zero_point(*zero_points, output, group);
    }
  }
}

bool StoredMatrix::has_zero_points() const {
  const Piece* zeros = find(LeafRole::kZeroPoints);
  if (zeros == nullptr) return false;
  if (scheme_.layout == WeightLayout::kInt8) {
    return !zeros->is_all(int8_t{0});
  }
  return !zeros->is_all(scheme_.symmetric_zero_points());
}

// Signed, as numbers are.
float StoredMatrix::zero_point(const Piece& zeros, int64_t output, int64_t group) const {
  if (scheme_.layout != WeightLayout::kInt8) return packed_zero_point(zeros, output, group);
  const int64_t row = scheme_.group_outputs == 0 ? 0 : output / scheme_.group_outputs;
  return static_cast<float>(*zeros.at<int8_t>(row, group));
}

float StoredMatrix::packed_zero_point(const Piece& zeros, int64_t output, int64_t group) const {
  const int per_word = 32 / scheme_.bits;
  const bool is_transposed = scheme_.layout != WeightLayout::kPacked;
  uint32_t word = is_transposed ? *zeros.at<uint32_t>(group, output / per_word)
                                : *zeros.at<uint32_t>(output / per_word, group);
  if (scheme_.zeros_less_one) word += one_each(scheme_.bits);
  const auto place = static_cast<int>(output % per_word);
  const bool is_awq = scheme_.layout == WeightLayout::kAwq;
  return static_cast<float>(
      number_at(word, is_awq ? kAwqNibble[static_cast<size_t>(place)] : place, scheme_.bits));
}

}  // namespace quire
