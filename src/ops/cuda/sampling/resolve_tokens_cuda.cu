// Tokens that were sampled in the step before, put among those that the host knew; and all of a
// step's where their keys and values go, for what asks later which tokens a sequence has.
#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "ops/cuda/kernels.h"

namespace quire::ops::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) resolve_kernel(CudaResolveTokens args) {
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < args.num_tokens) {
    const int32_t source = args.sources[i];
    if (source >= 0) args.token_ids[i] = max(args.sampled[source], 0);
    const int64_t slot = args.slot_mapping[i];
    if (slot >= 0 && args.cached_ids != nullptr) args.cached_ids[slot] = args.token_ids[i];
  }
  release_next();
}

}  // namespace

void resolve_tokens(CudaStream& stream, const CudaResolveTokens& args) {
  if (args.num_tokens == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_div(args.num_tokens, kThreads));
  launch(stream, resolve_kernel, dim3(blocks), dim3(kThreads), 0, args);
}

}  // namespace quire::ops::cuda
