#pragma once
// How a checkpoint stores one quantised matrix [n, k] (n outputs, k inputs): plain values, known
// from config.json or a file's header before any weight is read.
//
// A scheme says which tensors, called leaves, the matrix is made of, and how their shapes follow
// from n and k, so that a rank can take its share of each. loader/stored_matrix.h turns a share
// into numbers. Thread safety: plain values and free functions without state.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "loader/gguf_types.h"
#include "loader/parameter.h"

namespace quire {

// How the numbers of a matrix are laid out. Packed integers of b bits are 32 / b to an int32, the
// first in the lowest bits, and unsigned; their value is
//  scale * (number - zero point).
enum class WeightLayout : uint8_t {
  // GPTQ: qweight [k / 8, n], qzeros [groups, n / 8], scales [groups, n] and g_idx [k], the group
  // of each input (here and below for 4 bits; words of 8 bits hold 4). Numbers are packed along the
  // inputs, zero points along the outputs.
  kGptq,
  // AWQ: qweight [k, n / 8], qzeros [groups, n / 8], scales [groups, n]. Both are packed along the
  // outputs; the nibbles of a word are those of its outputs 0, 2, 4, 6, 1, 3, 5, 7.
  kAwq,
  // compressed-tensors' pack-quantized: weight_packed [n, k / 8], weight_scale [n, groups],
  // weight_zero_point [n / 8, groups] unless symmetric (then it is half the range), weight_shape
  // [2], with act-order weight_g_idx [k].
  kPacked,
  // compressed-tensors' int-quantized: weight int8 [n, k], weight_scale, and a weight_zero_point
  // int8 of the scale's shape unless symmetric.
  kInt8,
  // weight float8 e4m3 [n, k] and its scales.
  kFloat8,
  // A GGUF file's: weight, rows of blocks of one type (loader/gguf_blocks.h).
  kGgufBlocks,
};

struct WeightScheme {
  std::string name;  // of the method: "GPTQ", "fp8"
  WeightLayout layout = WeightLayout::kFloat8;
  int bits = 8;  // of a number
  // The rectangle of the matrix that shares a scale; 0: all outputs, all inputs. So a scale for
  // each output is {1, 0}, for the whole matrix {0, 0}, for groups of 128 inputs {1, 128}.
  int64_t group_outputs = 1;
  int64_t group_inputs = 0;
  bool symmetric = true;   // all zero points are half the range
  bool act_order = false;  // the checkpoint says which group each input is of
  // GPTQ's first version: stored zero points are one too low, by a subtraction from the whole word.
  bool zeros_less_one = false;
  std::string scale_leaf = "weight_scale";  // of kFloat8
  const GgufType* block_type = nullptr;     // of kGgufBlocks, which follows from it

  bool operator==(const WeightScheme&) const = default;
  // For blocks that gguf_integers() knows.
  static WeightScheme gguf_blocks(const GgufType& type);

  // A word of the zero points of symmetric packed layers, as it is stored.
  uint32_t symmetric_zero_points() const;
  // Whether numbers are integers with scales and zero points, or offsets, of their own.
  bool is_integer() const;
  // "GPTQ, 4 bits, groups of 128, act-order".
  std::string describe() const;
};

// The length of an axis of a leaf: one entry for each `block` outputs or inputs of the matrix.
struct LeafAxis {
  enum class Of : uint8_t { kOutputs, kInputs, kNeither };
  Of of = Of::kNeither;
  int64_t block = 1;
  int64_t entries = 1;  // of an axis that is of neither
  bool split = true;    // a rank takes its share; otherwise all

  int64_t extent(int64_t n, int64_t k) const;
  // A rank's part of the axis for these outputs and inputs: whole blocks.
  IndexRange share(int64_t n, int64_t k, IndexRange outputs, IndexRange inputs) const;
};

// The role of a leaf in its scheme.
enum class LeafRole : uint8_t { kNumbers, kScales, kZeroPoints, kGroupOfInput, kShape };

struct SchemeLeaf {
  LeafRole role = LeafRole::kNumbers;
  std::string name;  // "qweight"
  std::vector<DType> dtypes;
  LeafAxis rows;
  LeafAxis columns;        // of a vector: one
  bool is_vector = false;  // its shape is [rows]
  bool optional = false;   // the checkpoint may lack it

  // How many of the matrix's numbers an element holds.
  int64_t numbers_each() const {
    return role == LeafRole::kNumbers ? rows.block * columns.block : 0;
  }
};

// The tensors of a matrix [n, k]; each role at most once. Throws Error, which begins with
// `module`'s name, where the scheme cannot store a matrix of that size.
std::vector<SchemeLeaf> leaves_of(const WeightScheme& scheme, std::string_view module, int64_t n,
                                  int64_t k);

}  // namespace quire
