#pragma once
// silu_and_mul of a product that is in memory, for products that do not do it themselves.
//
// Thread safety: as the stream's.
#include <cstdint>

#include "core/dtype.h"
#include "core/stream_cuda.h"
#include "ops/float8_activations.h"

namespace quire::ops::cuda {

// out[row][i] = silu(gate_up[row][i]) * gate_up[row][inner + i].
struct Activation {
  const void* gate_up;
  int64_t gate_up_stride;
  int64_t rows;
  int64_t inner;
  void* out;
  int64_t out_stride;
};

__device__ __forceinline__ float gated(float gate, float up) {
  return gate / (1.0f + __expf(-gate)) * up;
}

// Whether activate_and_round takes rows of this length: they stay in registers.
bool can_activate_and_round(int64_t inner);
// The results, rounded to `dtype`, are rounded to `rounded`; args.out is not written. inner is a
// multiple of kFloat8Block; dtype bfloat16 or float16, that of gate_up.
void activate_and_round(CudaStream& stream, DType dtype, const Activation& args,
                        const Float8Activations& rounded);

}  // namespace quire::ops::cuda
