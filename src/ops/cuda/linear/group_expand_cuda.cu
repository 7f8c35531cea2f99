// Before products: inputs in the order of a permutation, and integers as a dense weight.
#include <algorithm>
#include <cstdint>

#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/linear/group.cuh"
#include "ops/cuda/linear/group_expand.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kOrderThreads = 256;

struct OrderArgs {
  const uint16_t* in;
  int64_t in_stride;
  const int32_t* permutation;
  int64_t rows;
  int k;
  uint16_t* out;
  int64_t out_stride;
};

__global__ __launch_bounds__(kOrderThreads) void order_inputs_kernel(OrderArgs args) {
  const int i = static_cast<int>(blockIdx.x) * kOrderThreads + static_cast<int>(threadIdx.x);
  const int from = i < args.k ? __ldg(args.permutation + i) : 0;
  wait_for_previous();
  release_next();
  if (i >= args.k) return;
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    args.out[row * args.out_stride + i] = args.in[row * args.in_stride + from];
  }
}

// A thread has 16 inputs of an output: a step of a block.
constexpr int kExpandThreads = 128;
static_assert(kExpandThreads * 16 == kTileOutputs * kTileInputs);

struct ExpandArgs {
  const std::byte* tiles;
  GroupTiles layout;
  void* out;  // [n, k]
};

// Inputs 8 * further + 2 * quarter and the next one of the step, as their integers.
template <typename T>
__device__ __forceinline__ ElementPair<T> integers_of(bool four_bits, const uint32_t* data,
                                                      int output, int step, int further,
                                                      int quarter) {
  const int upper = output / 8;
  const int lane = output % 8 * 4 + quarter;
  if (four_bits) {
    const int word = (step / 4 * 32 + lane) * 4 + step % 4 / 2 * 2 + upper;
    return expand_int4<T>(data[word] >> (4 * (step % 2 * 2 + further)));
  }
  const int word = (step / 2 * 32 + lane) * 4 + step % 2 * 2 + upper;
  return expand_int8<T>(data[word] >> (8 * further));
}

template <typename T>
__device__ __forceinline__ ElementPair<T> scaled(ElementPair<T> pair, float scale) {
  if constexpr (kIsBFloat16<T>) {
    const float2 values = __bfloat1622float2(pair);
    return __floats2bfloat162_rn(values.x * scale, values.y * scale);
  } else {
    const float2 values = __half22float2(pair);
    return __floats2half2_rn(values.x * scale, values.y * scale);
  }
}

// Grid: blocks of inputs, panels.
template <typename T>
__global__ __launch_bounds__(kExpandThreads) void expand_groups_kernel(ExpandArgs args) {
  const GroupTiles& layout = args.layout;
  const std::byte* const block =
      args.tiles + (blockIdx.y * layout.blocks() + blockIdx.x) * layout.block_bytes();
  const int output = static_cast<int>(threadIdx.x) / 8;
  const int step = static_cast<int>(threadIdx.x) % 8;
  const auto* data = reinterpret_cast<const uint32_t*>(block);
  const auto* scales = reinterpret_cast<const float*>(block + layout.data_bytes()) +
                       step * layout.groups / 8 * kTileOutputs + output;
  const float scale = *scales;
  const T shift = from_float<T>(layout.has_shifts ? scales[layout.groups * kTileOutputs] : 0.0f);
  ElementPair<T> shifts;
  shifts.x = shift;
  shifts.y = shift;
  struct alignas(16) Numbers {
    ElementPair<T> pairs[8];
  } numbers;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const auto pair = integers_of<T>(layout.four_bits, data, output, step, i / 4, i % 4);
    numbers.pairs[i] = scaled<T>(__hadd2(pair, shifts), scale);
  }
  // What was here before may still be read.
  wait_for_previous();
  release_next();
  const int64_t row = int64_t{blockIdx.y} * kTileOutputs + output;
  const int64_t first = int64_t{blockIdx.x} * kTileInputs + 16 * step;
  if (row >= layout.n) return;
  T* const out = static_cast<T*>(args.out) + row * layout.k + first;
  if (first + 16 <= layout.k && layout.k % 8 == 0) {
    store_pack(out, *reinterpret_cast<const Pack<T>*>(&numbers.pairs[0]));
    store_pack(out + 8, *reinterpret_cast<const Pack<T>*>(&numbers.pairs[4]));
    return;
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (first + i < layout.k) out[i] = i % 2 == 0 ? numbers.pairs[i / 2].x : numbers.pairs[i / 2].y;
  }
}

char* behind_order(const CudaLinear& args, bool is_permuted) {
  return static_cast<char*>(args.scratch) + group_order_bytes(args.rows, args.k, is_permuted);
}

}  // namespace

CudaLinear order_inputs(CudaStream& stream, const CudaLinear& args) {
  constexpr int64_t kMostGridRows = 65535;  // a block has several rows where there are more
  CudaLinear ordered = args;
  ordered.in = args.scratch;
  ordered.in_stride = round_up<int64_t>(args.k, 8);
  ordered.scratch = behind_order(args, true);
  ordered.weight.permutation = nullptr;
  launch(stream, order_inputs_kernel,
         dim3(static_cast<unsigned>(ceil_div<int64_t>(args.k, kOrderThreads)),
              static_cast<unsigned>(std::min(args.rows, kMostGridRows))),
         kOrderThreads, 0,
         OrderArgs{static_cast<const uint16_t*>(args.in), args.in_stride, args.weight.permutation,
                   args.rows, static_cast<int>(args.k), static_cast<uint16_t*>(args.scratch),
                   ordered.in_stride});
  return ordered;
}

CudaLinear expand_groups(CudaStream& stream, const CudaLinear& args) {
  const GroupTiles layout = group_tiles(args.weight.format, args.n, args.k);
  const ExpandArgs kernel_args = {static_cast<const std::byte*>(args.weight.data), layout,
                                  args.scratch};
  const dim3 grid(static_cast<unsigned>(layout.blocks()), static_cast<unsigned>(layout.panels()));
  with_element_type(args.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (!std::is_same_v<T, float>) {
      launch(stream, expand_groups_kernel<T>, grid, kExpandThreads, 0, kernel_args);
    }
  });
  CudaLinear dense = args;
  dense.weight = {.format = args.dtype, .data = args.scratch};
  dense.scratch = nullptr;
  return dense;
}

}  // namespace quire::ops::cuda
