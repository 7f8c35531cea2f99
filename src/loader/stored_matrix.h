#pragma once
// A rank's share of a quantised matrix, as the checkpoint stores it, in host memory. A parameter
// keeps it until all tensors have come, and then converts it to the format that its device computes
// with.
//
// Memory is taken when a leaf's first rows arrive, unless they can be read where they are. Thread
// safety: store() may run at once on rows that don't overlap; once all is stored, const use is
// free.
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "loader/parameter.h"
#include "loader/weight_scheme.h"

namespace quire {

// Which part of which matrix a rank takes.
struct StoredShare {
  std::string module;  // "model.layers.0.mlp.down_proj"
  int64_t n = 0;       // of the whole matrix
  int64_t k = 0;
  IndexRange outputs;  // that the rank takes; may be empty
  IndexRange inputs;
  int64_t module_outputs = 0;  // of the checkpoint's module, which may hold several matrices; 0: n
};

class StoredMatrix {
 public:
  // Throws Error where the scheme cannot store a matrix of that size.
  StoredMatrix(WeightScheme scheme, StoredShare share);

  const WeightScheme& scheme() const { return scheme_; }
  const StoredShare& share() const { return share_; }
  const std::vector<SchemeLeaf>& leaves() const { return leaves_; }
  // Leaf `leaf`: its whole shape, and the rank's rows and columns of it; first_row is 0.
  ParameterPart part(size_t leaf) const;

  // Rows of a leaf from `first_row` of the rank's rows on, with all of the rank's columns. Where
  // `is_kept`, which is the same for all rows of a leaf, these are rows of one array that stays as
  // it is until free(). Does not throw.
  void store(size_t leaf, int64_t first_row, const Tensor& source, bool is_kept = false);
  // Once all is stored, before what follows.
  void set_groups();
  // Frees the memory.
  void free();

  // Writes the values of `rows`, counted from share().outputs.begin, as float32 to out[rows.size(),
  // share().inputs.size()].
  void dequantise(IndexRange rows, float* out) const;

  // For float8 whose scales are for all inputs: one for each of the rank's outputs.
  std::vector<float> output_scales() const;
  // For float8 in blocks: [blocks of outputs, blocks of inputs]. The rank's outputs and inputs
  // begin at a block.
  std::vector<float> block_scales() const;

  // Number of groups of inputs, in the whole matrix, with scales of their own.
  int64_t num_groups() const;
  // The group of each of the rank's inputs.
  const std::vector<int32_t>& group_of_input() const { return group_of_input_; }
  // For integer schemes. The number at output i and input j is
  //   scales[i, g] * (numbers[i, j] - zeros[i, g]), g = group_of_input()[j],
  // with numbers of -8 to 7 or -128 to 127. numbers [rows, inputs], scales and zeros [rows,
  // num_groups()].
  void decode_numbers(IndexRange rows, int8_t* numbers) const;
  void decode_scales(IndexRange rows, float* scales, float* zeros) const;
  // The numbers of a row and those after it as words, of which each holds 32 / bits numbers that
  // follow each other, the first in the lowest bits, and each half the range more than it stands
  // for. Null where the layout has no such words, or the rank's inputs don't begin with one.
  struct PackedRows {
    const uint32_t* words = nullptr;
    int64_t row_stride = 0;  // in words
  };
  PackedRows packed_rows(int64_t first_row) const;
  // Whether any of these zeros, or of a neighbour's in the same word, is not 0.
  bool has_zero_points() const;

 private:
  // A leaf's share: rows and columns of it.
  struct Piece {
    const std::byte* data = nullptr;  // null: not stored
    int64_t row_stride = 0;           // in elements
    std::vector<std::byte> copied;    // none: the data stay elsewhere
    DType dtype = DType::kFloat32;
    IndexRange rows;
    IndexRange columns;

    bool is_stored() const { return data != nullptr; }
    // Element (row, column) of the whole leaf.
    template <typename T>
    const T* at(int64_t row, int64_t column) const;
    float float_at(int64_t row, int64_t column) const;
    // The elements of a row that the rank takes, as float32.
    void widen_row(int64_t row, float* out) const;
    // Whether all elements have this value.
    template <typename T>
    bool is_all(T value) const;
  };

  const Piece* find(LeafRole role) const;
  IntegerRule integer_rule(size_t leaf) const;
  const Piece& required(LeafRole role) const;
  void set_groups_in_order();
  void set_groups_from(const Piece& group_of_input);
  void decode_gptq(IndexRange outputs, int8_t* numbers) const;
  void decode_awq(IndexRange outputs, int8_t* numbers) const;
  void decode_rows(IndexRange outputs, int8_t* numbers) const;
  void decode_packed_scales(IndexRange rows, float* scales, float* zeros) const;
  float zero_point(const Piece& zeros, int64_t output, int64_t group) const;
  float packed_zero_point(const Piece& zeros, int64_t output, int64_t group) const;
  void dequantise_integers(IndexRange rows, float* out) const;
  void dequantise_float8(IndexRange rows, float* out) const;

  WeightScheme scheme_;
  StoredShare share_;
  std::vector<SchemeLeaf> leaves_;
  std::vector<Piece> pieces_;  // as leaves_
  std::vector<int32_t> group_of_input_;
  std::mutex mutex_;  // held while a piece takes its memory
};

}  // namespace quire
