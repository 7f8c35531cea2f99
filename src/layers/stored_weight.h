#pragma once
// What a quantised matrix of a checkpoint is computed as, and how its numbers get there.
//
// A GPU has kernels for dense weights, and one of compute capability 9.0 for float8 with a scale
// for each output or for each block of 128 x 128, and for integers of 4 and 8 bits in groups of at
// least 32 inputs; the CPU for float8 with a scale for each output, and for integers in groups.
// What a device cannot take as it is stored is dequantised. No value changes but in a GPU's groups
// with zero points that 16 bits cannot hold (ops/group_tiles.cc). Thread safety: free functions
// without state.
#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "layers/placement.h"
#include "loader/stored_matrix.h"
#include "ops/weight.h"

namespace quire {

// How a checkpoint has one of the modules that a matrix is made of.
struct StoredModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  WeightScheme scheme;
};

// Whether the placement has a kernel for a float8 matrix [n, k] with a scale for each output.
bool multiplies_float8(const Placement& place, int64_t n, int64_t k);
// Whether it has one for integers of this format and k inputs, of which a GPU takes multiples of 8.
bool multiplies_integers(const Placement& place, const ops::WeightFormat& format, int64_t k);

// The format of a matrix that is made of these modules; `parts` are those of a dense "weight".
// Products with integers round activations to int8, but not where the placement's dtype is float32.
ops::WeightFormat stored_format(const Placement& place, const std::vector<StoredModule>& modules,
                                const std::vector<ParameterPart>& parts);

// The rank's inputs, sorted by their groups: act-order's permutation.
std::vector<int32_t> input_order(const StoredMatrix& stored);

// Whether the format can have the stored numbers, now that they are known, with its inputs in this
// order: the inputs of a group lie together, and zero points are none where it has no offsets.
// Always true of dense and float8.
bool can_pack(const StoredMatrix& stored, const std::vector<int32_t>& order,
              const ops::WeightFormat& format);

// Rows of the weight, from first_row on, from all stored rows: all of them, of integers in this
// order of inputs, or of float8 the scales, as it has the numbers already.
void pack_stored(const StoredMatrix& stored, const std::vector<int32_t>& order, int64_t first_row,
                 ops::Weight& weight, ThreadPool& pool);

}  // namespace quire
