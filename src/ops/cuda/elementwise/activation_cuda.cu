// Gated activations.
#include <type_traits>

#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernels.h"

namespace quire::ops::cuda {
namespace {

// The hardware's exponential and reciprocal are exact to about 2^-21: enough for 16-bit results.
template <typename T>
__device__ __forceinline__ float silu(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x / (1.0f + expf(-x));
  } else {
    return __fdividef(x, 1.0f + __expf(-x));
  }
}

// Block (row, part): the part'th blockDim.x packs of a row.
template <typename T>
__global__ void silu_and_mul_packs(const T* gate_up, int64_t inner, T* out) {
  release_next();
  wait_for_previous();
  const int64_t at = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kPackSize;
  if (at >= inner) return;
  const T* gate = gate_up + int64_t{blockIdx.x} * 2 * inner + at;
  const Pack<T> gates = load_pack(gate);
  const Pack<T> ups = load_pack(gate + inner);
  Pack<T> results;
#pragma unroll
  for (int i = 0; i < kPackSize; ++i) {
    results.at[i] = from_float<T>(silu<T>(to_float(gates.at[i])) * to_float(ups.at[i]));
  }
  store_pack(out + int64_t{blockIdx.x} * inner + at, results);
}

// For rows that are no whole number of packs.
template <typename T>
__global__ void silu_and_mul_elements(const T* gate_up, int64_t inner, T* out) {
  release_next();
  wait_for_previous();
  const T* gate = gate_up + int64_t{blockIdx.x} * 2 * inner;
  T* row = out + int64_t{blockIdx.x} * inner;
  for (int64_t i = threadIdx.x; i < inner; i += blockDim.x) {
    row[i] = from_float<T>(silu<T>(to_float(gate[i])) * to_float(gate[i + inner]));
  }
}

}  // namespace

void silu_and_mul(CudaStream& stream, const CudaSiluAndMul& args) {
  if (args.rows == 0 || args.inner == 0) return;
  constexpr int64_t kMostThreads = 256;
  constexpr int64_t kMostParts = 65535;
  const auto rows = static_cast<unsigned>(args.rows);
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* gate_up = static_cast<const T*>(args.gate_up);
    auto* out = static_cast<T*>(args.out);
    const int64_t packs = args.inner / kPackSize;
    const int64_t parts = ceil_div(packs, kMostThreads);
    if (args.inner % kPackSize != 0 || parts > kMostParts) {
      launch(stream, silu_and_mul_elements<T>, dim3(rows), dim3(kMostThreads), 0, gate_up,
             args.inner, out);
      return;
    }
    // Parts of equal size, in whole warps.
    const auto threads = static_cast<unsigned>(ceil_div(ceil_div(packs, parts), 32) * 32);
    launch(stream, silu_and_mul_packs<T>, dim3(rows, static_cast<unsigned>(parts)), dim3(threads),
           0, gate_up, args.inner, out);
  });
}

}  // namespace quire::ops::cuda
