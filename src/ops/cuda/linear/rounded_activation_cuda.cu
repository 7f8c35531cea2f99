#include "base/ceil_div.h"
#include "base/check.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/float8_rounding.cuh"
#include "ops/cuda/linear/activation.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kMostThreads = 512;
constexpr int kMostPacks = 8;  // of a thread

// Two blocks on a multiprocessor, so that one reads while the other waits for its row's greatest
// magnitude, but where that leaves too few registers.
constexpr int blocks_at_once(int packs) {
  return packs < kMostPacks ? 2 : 1;
}

// A row a block.
template <typename T, bool kHasBlocks, int kPacks>
__global__ __launch_bounds__(kMostThreads, blocks_at_once(kPacks)) void rounded_activation_kernel(
    Activation args, Float8Activations out) {
  __shared__ unsigned greatest[kMostThreads / 32];
  release_next();
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const auto num_packs = static_cast<int>(args.inner / kPackSize);
  const T* gate = static_cast<const T*>(args.gate_up) + row * args.gate_up_stride;
  const T* up = gate + args.inner;
  Pack<T> gates[kPacks];
  Pack<T> ups[kPacks];
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    if (i >= num_packs) continue;
    gates[j] = load_pack(gate + i * kPackSize);
    ups[j] = load_pack(up + i * kPackSize);
  }
  Pack<T> results[kPacks];
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    keep_packed(gates[j]);
    keep_packed(ups[j]);
#pragma unroll
    for (int i = 0; i < kPackSize; ++i) {
      results[j].at[i] = from_float<T>(gated(to_float(gates[j].at[i]), to_float(ups[j].at[i])));
    }
    keep_packed(results[j]);
  }
  store_rounded_row<kHasBlocks>(results, row, num_packs, out, greatest);
}

template <typename T, int kPacks>
void launch_packs(CudaStream& stream, const Activation& args, const Float8Activations& rounded) {
  const auto kernel = rounded.has_blocks() ? rounded_activation_kernel<T, true, kPacks>
                                           : rounded_activation_kernel<T, false, kPacks>;
  const int64_t threads = round_up(ceil_div(args.inner / kPackSize, kPacks), 32);
  launch(stream, kernel, static_cast<unsigned>(args.rows), static_cast<unsigned>(threads), 0, args,
         rounded);
}

template <typename T>
void launch_activation(CudaStream& stream, const Activation& args,
                       const Float8Activations& rounded) {
  const int64_t packs = ceil_div(args.inner / kPackSize, kMostThreads);
  if (packs <= 1) {
    launch_packs<T, 1>(stream, args, rounded);
  } else if (packs <= 2) {
    launch_packs<T, 2>(stream, args, rounded);
  } else if (packs <= 4) {
    launch_packs<T, 4>(stream, args, rounded);
  } else {
    launch_packs<T, kMostPacks>(stream, args, rounded);
  }
}

}  // namespace

bool can_activate_and_round(int64_t inner) {
  return inner / kPackSize <= kMostPacks * kMostThreads;
}

void activate_and_round(CudaStream& stream, DType dtype, const Activation& args,
                        const Float8Activations& rounded) {
  check(can_activate_and_round(args.inner) && args.inner % kFloat8Block == 0,
        "a row stays in registers, and has whole blocks");
  if (dtype == DType::kFloat16) {
    launch_activation<__half>(stream, args, rounded);
  } else {
    launch_activation<__nv_bfloat16>(stream, args, rounded);
  }
}

}  // namespace quire::ops::cuda
