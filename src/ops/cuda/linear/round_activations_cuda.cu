#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/float8_rounding.cuh"
#include "ops/cuda/linear/float8.cuh"

namespace quire::ops::cuda {
namespace {

// A scale for each row; a row a block. A thread keeps kHeld packs, and reads those of longer rows
// twice.
constexpr int kMostRowThreads = 512;
constexpr int kHeld = 4;

template <typename T>
__global__ __launch_bounds__(kMostRowThreads) void round_rows_kernel(RowsToRound args) {
  __shared__ unsigned greatest_of_warps[kMostRowThreads / 32];
  release_next();
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const T* in = static_cast<const T*>(args.in) + row * args.in_stride;
  uint8_t* out = args.out.data + row * args.k;
  const int num_packs = static_cast<int>(args.k / kPackSize);
  const auto num_threads = static_cast<int>(blockDim.x);
  Pack<T> held[kHeld];
  unsigned greatest = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = j * num_threads + threadIdx.x;
    if (i < num_packs) held[j] = load_pack(in + i * kPackSize);
  }
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = j * num_threads + threadIdx.x;
    if (i < num_packs) greatest = max(greatest, greatest_of(held[j]));
  }
  for (int i = kHeld * num_threads + threadIdx.x; i < num_packs; i += num_threads) {
    greatest = max(greatest, greatest_of(load_pack(in + i * kPackSize)));
  }
  const float scale = float8_scale_of(greatest_of_block(greatest, greatest_of_warps));
  if (threadIdx.x == 0) args.out.scales[row] = scale;
  const float inverse = 1.0f / scale;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = j * num_threads + threadIdx.x;
    if (i < num_packs) store_rounded(held[j], inverse, out + i * kPackSize);
  }
  for (int i = kHeld * num_threads + threadIdx.x; i < num_packs; i += num_threads) {
    store_rounded(load_pack(in + i * kPackSize), inverse, out + i * kPackSize);
  }
}

// Few rows are done soonest by many threads; of many, small blocks keep more reads in flight.
int threads_of_row(int64_t rows, int64_t k) {
  constexpr int64_t kFewRows = 256;
  const int64_t packs_each = rows <= kFewRows ? 1 : kHeld;
  const int64_t threads = round_up(ceil_div(k / kPackSize, packs_each), 32);
  return static_cast<int>(std::min<int64_t>(threads, kMostRowThreads));
}

// A scale for each kFloat8Block inputs of a row.
constexpr int kBlocksThreads = 256;

template <typename T>
__global__ __launch_bounds__(kBlocksThreads) void round_blocks_kernel(RowsToRound args) {
  release_next();
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const int pack = blockIdx.y * kBlocksThreads + threadIdx.x;
  const bool is_inside = pack < args.k / kPackSize;
  Pack<T> values = {};
  if (is_inside) {
    values = load_pack(static_cast<const T*>(args.in) + row * args.in_stride + pack * kPackSize);
  }
  const float scale = float8_scale_of(greatest_of_float8_block(greatest_of(values)));
  if (!is_inside) return;
  if (pack % kThreadsOfFloat8Block == 0) {
    args.out.scales[pack / kThreadsOfFloat8Block * args.out.scale_stride + row] = scale;
  }
  store_rounded(values, 1.0f / scale, args.out.data + row * args.k + pack * kPackSize);
}

template <typename T>
void launch_rounding(CudaStream& stream, const RowsToRound& args) {
  if (args.out.has_blocks()) {
    const auto blocks = static_cast<unsigned>(ceil_div(args.k / kPackSize, kBlocksThreads));
    launch(stream, round_blocks_kernel<T>, dim3(static_cast<unsigned>(args.rows), blocks),
           kBlocksThreads, 0, args);
  } else {
    launch(stream, round_rows_kernel<T>, static_cast<unsigned>(args.rows),
           threads_of_row(args.rows, args.k), 0, args);
  }
}

}  // namespace

Float8Activations float8_activations(const CudaLinear& args, bool for_cublas) {
  if (args.rounded_in.data != nullptr) return args.rounded_in;
  check(args.scratch != nullptr, "a product of float8 weights has scratch memory");
  auto* data = static_cast<uint8_t*>(args.scratch);
  const int64_t data_bytes = round_up(args.rows * args.k, 256);
  const int64_t stride = for_cublas ? args.rows : round_up(args.rows, kLinearScaleRows);
  return {data, reinterpret_cast<float*>(data + data_bytes), has_blocks(args) ? stride : 0};
}

void round_to_float8(CudaStream& stream, const RowsToRound& args) {
  if (args.dtype == DType::kFloat16) {
    launch_rounding<__half>(stream, args);
  } else {
    launch_rounding<__nv_bfloat16>(stream, args);
  }
}

void round_activations(CudaStream& stream, const CudaLinear& args,
                       const Float8Activations& activations) {
  if (args.rounded_in.data != nullptr) return;
  round_to_float8(stream, {.dtype = args.dtype,
                           .in = args.in,
                           .in_stride = args.in_stride,
                           .rows = args.rows,
                           .k = args.k,
                           .out = activations});
}

}  // namespace quire::ops::cuda
