#pragma once
// The format in which a quantised matrix of a checkpoint is computed, and the conversion to it.
//
// A GPU has kernels for dense weights; from compute capability 9.0 also for float8 with a scale for
// each output or for each block of 128 x 128, and for integers of 4 and 8 bits in groups of at
// least 32 inputs. The CPU has kernels for float8 with a scale for each output, and for integers in
// groups. A stored format without a kernel is dequantised. Values never change, except in a GPU's
// groups with zero points that 16 bits cannot hold (ops/group_tiles.cc). Thread safety: free
// functions without state.
#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "layers/placement.h"
#include "loader/stored_matrix.h"
#include "ops/weight.h"

namespace quire {

// How a checkpoint stores one of the modules that a matrix is made of.
struct StoredModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  WeightScheme scheme;
};

// Whether the placement has a kernel for a float8 matrix [n, k] with a scale for each output.
bool multiplies_float8(const Placement& place, int64_t n, int64_t k);
// Whether it has one for integers of this format and k inputs (on a GPU a multiple of 8).
bool multiplies_integers(const Placement& place, const ops::WeightFormat& format, int64_t k);

// The format of a matrix made of these modules; `parts` are those of a dense "weight". Integer
// products round activations to int8, except where the placement's dtype is float32.
ops::WeightFormat stored_format(const Placement& place, const std::vector<StoredModule>& modules,
                                const std::vector<ParameterPart>& parts);

// The rank's inputs, sorted by their groups: act-order's permutation.
std::vector<int32_t> input_order(const StoredMatrix& stored);

// Whether the format can hold the stored numbers with its inputs in this order: the inputs of a
// group lie together, and if it has no offsets, there are no zero points. Always true for dense and
// float8.
bool can_pack(const StoredMatrix& stored, const std::vector<int32_t>& order,
              const ops::WeightFormat& format);

// Packs rows of the weight, from first_row on, from all stored rows: for integers everything, in
// this order of inputs; for float8 only the scales, because it has the numbers already.
void pack_stored(const StoredMatrix& stored, const std::vector<int32_t>& order, int64_t first_row,
                 ops::Weight& weight, ThreadPool& pool);

}  // namespace quire
