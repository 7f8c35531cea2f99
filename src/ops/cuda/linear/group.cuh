#pragma once
// Products of integer weights in groups, whose layout is in ops/group_tiles.h: integers are
// expanded to the activations' type on their way to the tensor cores.
//
// Thread safety: as the stream's.
#include <cstdint>

#include "ops/cuda/linear/linear.cuh"

namespace quire::ops::cuda {

// args.in in the order of the weight's inputs, to the arguments' scratch: args with that.
CudaLinear order_inputs(CudaStream& stream, const CudaLinear& args);

// The weight's numbers as a dense weight behind that: args with them.
CudaLinear expand_groups(CudaStream& stream, const CudaLinear& args);

// out = in * weight^T + bias, with silu_and_mul where gated_group_linear_takes says so, in a kernel
// that takes any number of rows. How it cuts a product follows only from the shape.
struct GroupPlan {
  int tile_rows;   // 8, 16, 64 or 128: rows of activations a block
  int warpgroups;  // of kGroupColumns outputs each: 1, or 3 of 128 rows
  int splits;      // parts of k: 1, 2, 4 or 8
  // In shared memory, kMaxStages at most: of weights, and no more of activations.
  int num_stages;
  int num_in_stages;
};
GroupPlan group_plan(const CudaLinear& args);
bool gated_group_linear_takes(const CudaLinear& args);
void group_linear(CudaStream& stream, const CudaLinear& args, const GroupPlan& plan);

}  // namespace quire::ops::cuda
