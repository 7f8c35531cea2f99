#pragma once
// A matrix that has been rounded, and the tensors that a checkpoint has for it.
//
// Thread safety: free functions without state; plain values. One thread at a time runs the loops.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "loader/checkpoint_writer.h"
#include "loader/weight_scheme.h"
#include "ops/cpu/integer_grid.h"
#include "quantise/endable_loops.h"

namespace quire {

// The format that matrices are rounded to: compressed-tensors' pack-quantized with a scale for each
// group of inputs or each output, or float-quantized with a scale for each output.
struct RoundingTarget {
  WeightScheme scheme;
  DType scale_dtype = DType::kBFloat16;  // float32 or bfloat16

  ops::IntegerType integers() const {
    return {.bits = scheme.bits, .symmetric = scheme.symmetric, .scale_dtype = scale_dtype};
  }
  // Whether a matrix of k inputs can be stored: in whole groups and whole words of int32.
  bool can_store(int64_t k) const;
  // Inputs of a group.
  int64_t group_size(int64_t k) const { return scheme.group_inputs == 0 ? k : scheme.group_inputs; }
};

// The type in which a model's scales are stored: the model's own, except bfloat16 in place of
// float16, because float16's smallest normal number is already the float8 scale of an output whose
// largest weight is 0.027.
DType scale_dtype_for(DType model);

// Matrix [n, k] of integers from -2^(bits-1) on, or of float8's bits.
struct RoundedMatrix {
  int64_t n = 0;
  int64_t k = 0;
  int64_t groups = 0;                    // of an output's inputs; equally large
  std::vector<int8_t> numbers;           // [n, k]
  std::vector<float> scales;             // [n, groups]
  std::vector<int8_t> zero_points = {};  // [n, groups]; of integers

  RoundedMatrix(int64_t outputs, int64_t inputs, int64_t num_groups);
};

// Rounds each number to the nearest, with the scales and zero points of ops/cpu/integer_grid.h; for
// float8 with scales that make each output's largest magnitude 448.
RoundedMatrix round_to_nearest(const RoundingTarget& target, const std::vector<float>& values,
                               int64_t n, int64_t k, const EndableLoops& loops);

// Writes the values of the numbers, in float32, to out[n, k].
void dequantise(const RoundingTarget& target, const RoundedMatrix& matrix, float* out,
                const EndableLoops& loops);

// The tensors of a matrix [n, k] of the layer `module`, in the order of their bytes.
std::vector<WrittenTensor> tensors_of(const RoundingTarget& target, const std::string& module,
                                      int64_t n, int64_t k);
// The bytes of each.
std::vector<std::vector<std::byte>> bytes_of_tensors(const RoundingTarget& target,
                                                     const RoundedMatrix& matrix);

// float32 as bytes of float32, bfloat16 or float16.
std::vector<std::byte> narrow_floats(DType dtype, const std::vector<float>& values);
// The type's name in safetensors files.
std::string safetensors_name(DType dtype);

}  // namespace quire
