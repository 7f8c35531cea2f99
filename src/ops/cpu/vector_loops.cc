#include "ops/cpu/vector_loops.h"

#include "base/cpu_features.h"
#include "ops/cpu/dispatch.h"

namespace quire::ops {

float dot(const float* a, const float* b, int64_t count) {
  return kernels_for(best_isa()).dot(a, b, count);
}

void add_scaled(float factor, const float* from, int64_t count, float* to) {
  kernels_for(best_isa()).add_scaled(factor, from, count, to);
}

}  // namespace quire::ops
