#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <type_traits>

#include "base/ceil_div.h"
#include "base/check.h"
#include "core/launch.cuh"
#include "ops/cuda/linear/activation.cuh"
#include "ops/cuda/linear/float8.cuh"
#include "ops/cuda/linear/group.cuh"
#include "ops/cuda/linear/linear.cuh"

namespace quire::ops::cuda {
namespace {

// Any shape: out = in * weight^T + bias, a tile of outputs a block, from tiles in shared memory.
constexpr int kPlainTile = 64;   // rows and columns of outputs
constexpr int kPlainDepth = 16;  // of k
constexpr int kPlainThreads = 256;
constexpr int kPlainPerThread = 4;  // rows and columns of outputs

// tile[i][j] = matrix[first_row + j][first_k + i], or 0 outside.
template <typename T>
__device__ void load_plain_tile(float (&tile)[kPlainDepth][kPlainTile + 1], const T* matrix,
                                int64_t rows, int64_t stride, int64_t k, int64_t first_row,
                                int64_t first_k) {
  for (int i = threadIdx.x; i < kPlainTile * kPlainDepth; i += kPlainThreads) {
    const int depth = i % kPlainDepth;
    const int row = i / kPlainDepth;
    const bool inside = first_row + row < rows && first_k + depth < k;
    tile[depth][row] =
        inside ? static_cast<float>(matrix[(first_row + row) * stride + first_k + depth]) : 0.0f;
  }
}

template <typename T, typename Out>
__global__ __launch_bounds__(kPlainThreads) void plain_linear_kernel(CudaLinear args) {
  __shared__ float in_tile[kPlainDepth][kPlainTile + 1];
  __shared__ float weight_tile[kPlainDepth][kPlainTile + 1];
  wait_for_previous();
  release_next();
  const int64_t first_column = int64_t{blockIdx.x} * kPlainTile;
  const int64_t first_row = int64_t{blockIdx.y} * kPlainTile;
  const int row = threadIdx.x / (kPlainTile / kPlainPerThread);
  const int column = threadIdx.x % (kPlainTile / kPlainPerThread);
  // Neighbours write neighbouring columns: a thread has those `column`, column + 16, ...
  constexpr int kStep = kPlainTile / kPlainPerThread;
  float sums[kPlainPerThread][kPlainPerThread] = {};
  for (int64_t first_k = 0; first_k < args.k; first_k += kPlainDepth) {
    load_plain_tile(in_tile, static_cast<const T*>(args.in), args.rows, args.in_stride, args.k,
                    first_row, first_k);
    load_plain_tile(weight_tile, static_cast<const T*>(args.weight.data), args.n, args.k, args.k,
                    first_column, first_k);
    __syncthreads();
    for (int depth = 0; depth < kPlainDepth; ++depth) {
#pragma unroll
      for (int i = 0; i < kPlainPerThread; ++i) {
#pragma unroll
        for (int j = 0; j < kPlainPerThread; ++j) {
          sums[i][j] += in_tile[depth][row + i * kStep] * weight_tile[depth][column + j * kStep];
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kPlainPerThread; ++i) {
#pragma unroll
    for (int j = 0; j < kPlainPerThread; ++j) {
      const int64_t r = first_row + row + i * kStep;
      const int64_t c = first_column + column + j * kStep;
      if (r >= args.rows || c >= args.n) continue;
      const float bias = args.bias != nullptr ? args.bias[c] : 0.0f;
      static_cast<Out*>(args.out)[r * args.out_stride + c] = static_cast<Out>(sums[i][j] + bias);
    }
  }
}

// out = bias in T.
constexpr int kRoundThreads = 256;
template <typename T>
__global__ __launch_bounds__(kRoundThreads) void round_bias_kernel(const float* bias, int64_t n,
                                                                   T* out) {
  wait_for_previous();
  release_next();
  const int64_t i = int64_t{blockIdx.x} * kRoundThreads + threadIdx.x;
  if (i < n) out[i] = static_cast<T>(bias[i]);
}

constexpr int kActivationThreads = 256;

// kWidth elements a thread; `inner` is a multiple of it.
template <typename T, typename Out, int kWidth>
__global__ __launch_bounds__(kActivationThreads) void activation_kernel(Activation args) {
  wait_for_previous();
  release_next();
  const int64_t i = (int64_t{blockIdx.x} * kActivationThreads + threadIdx.x) * kWidth;
  if (i >= args.inner) return;
  struct alignas(kWidth == 1 ? sizeof(T) : 16) In {
    T values[kWidth];
  };
  struct alignas(kWidth == 1 ? sizeof(Out) : 16) Result {
    Out values[kWidth];
  };
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const T* gate_up = static_cast<const T*>(args.gate_up) + row * args.gate_up_stride + i;
    const In gate = *reinterpret_cast<const In*>(gate_up);
    const In up = *reinterpret_cast<const In*>(gate_up + args.inner);
    Result result;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      result.values[j] = static_cast<Out>(
          gated(static_cast<float>(gate.values[j]), static_cast<float>(up.values[j])));
    }
    *reinterpret_cast<Result*>(static_cast<Out*>(args.out) + row * args.out_stride + i) = result;
  }
}

// Calls f with values of the device types of `dtype` and `out_dtype`.
template <typename F>
void with_types(DType dtype, DType out_dtype, const F& f) {
  check(out_dtype == dtype || out_dtype == DType::kFloat32, "a product is of dtype or float32");
  switch (dtype) {
    case DType::kBFloat16:
      return out_dtype == dtype ? f(__nv_bfloat16(), __nv_bfloat16()) : f(__nv_bfloat16(), 0.0f);
    case DType::kFloat16:
      return out_dtype == dtype ? f(__half(), __half()) : f(__half(), 0.0f);
    default:
      return f(0.0f, 0.0f);
  }
}

unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>(ceil_div(count, per_block));
}

void plain_linear(CudaStream& stream, const CudaLinear& args) {
  constexpr int64_t kMostGridRows = 65535;
  check(args.rows <= kMostGridRows * kPlainTile, "a product has that many rows at most");
  with_types(args.dtype, args.out_dtype, [&](auto in, auto out) {
    launch(stream, plain_linear_kernel<decltype(in), decltype(out)>,
           dim3(blocks_for(args.n, kPlainTile), blocks_for(args.rows, kPlainTile)), kPlainThreads,
           0, args);
  });
}

// What a product needs of the stream's scratch memory.
size_t bias_scratch_bytes(const CudaLinear& args) {
  constexpr size_t kAlignment = 256;
  if (args.bias == nullptr || args.out_dtype == DType::kFloat32) return 0;
  const size_t bytes = static_cast<size_t>(args.n) * size_of(args.out_dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void round_and_multiply(CudaStream& stream, const CudaLinear& args) {
  const Float8Activations activations = float8_activations(args, false);
  round_activations(stream, args, activations);
  float8_linear(stream, args, activations, float8_plan(args));
}

// linear without silu_and_mul of a dense weight, whatever the shape, or by cuBLAS of a float8
// weight whose activations are rounded already: then false means that cuBLAS has no kernel for it.
bool dense_or_rounded_product(CudaStream& stream, const CudaLinear& args) {
  if (args.k % 8 != 0) {
    plain_linear(stream, args);
    return true;
  }
  if (bias_scratch_bytes(args) == 0) return cublas_linear(stream, args, args.bias);
  // cuBLAS adds a bias of the output's type only.
  with_types(args.dtype, args.out_dtype, [&](auto, auto out) {
    using Out = decltype(out);
    launch(stream, round_bias_kernel<Out>, blocks_for(args.n, kRoundThreads), kRoundThreads, 0,
           args.bias, args.n, static_cast<Out*>(stream.scratch()));
  });
  return cublas_linear(stream, args, stream.scratch());
}

// linear without silu_and_mul.
void product(CudaStream& stream, const CudaLinear& args) {
  if (args.weight.format.is_integer()) return group_linear(stream, args, group_plan(args));
  const bool is_float8 = !args.weight.format.is_dense();
  if (is_float8) round_activations(stream, args, float8_activations(args, true));
  if (!dense_or_rounded_product(stream, args)) round_and_multiply(stream, args);
}

// Outputs that are in memory, to rounded_out.
void round_outputs(CudaStream& stream, const CudaLinear& args) {
  round_to_float8(stream, {.dtype = args.dtype,
                           .in = args.out,
                           .in_stride = args.out_stride,
                           .rows = args.rows,
                           .k = args.n / 2,
                           .out = args.rounded_out});
}

void activate(CudaStream& stream, DType dtype, DType out_dtype, const Activation& args) {
  constexpr int64_t kMostGridRows = 65535;
  with_types(dtype, out_dtype, [&](auto in, auto out) {
    using T = decltype(in);
    using Out = decltype(out);
    constexpr int kWidth = 16 / sizeof(T);
    const bool wide = args.inner % kWidth == 0;
    const auto kernel = wide ? activation_kernel<T, Out, kWidth> : activation_kernel<T, Out, 1>;
    const int64_t per_block = int64_t{kActivationThreads} * (wide ? kWidth : 1);
    launch(stream, kernel,
           dim3(blocks_for(args.inner, per_block),
                static_cast<unsigned>(std::min(args.rows, kMostGridRows))),
           kActivationThreads, 0, args);
  });
}

// Elements from one row to the next of a product that is kept in scratch memory.
int64_t scratch_stride(const CudaLinear& args) {
  return (args.n + 7) / 8 * 8;
}

// Rows of a product that scratch memory holds behind `used` bytes.
int64_t rows_in_scratch(const CudaLinear& args, size_t used) {
  constexpr int64_t kRowsUnit = 256;  // whole tiles of cuBLAS's
  const int64_t row_bytes = scratch_stride(args) * static_cast<int64_t>(size_of(args.dtype));
  const int64_t most_bytes = static_cast<int64_t>(CudaStream::kScratchBytes - used);
  check(row_bytes <= most_bytes, "a row of a product fits the scratch memory");
  const int64_t rows = most_bytes / row_bytes;
  return rows > kRowsUnit ? rows / kRowsUnit * kRowsUnit : rows;
}

// The product of some rows, as it is kept in scratch memory: `out` and `rows` are still to be set.
CudaLinear piece_of(const CudaLinear& args) {
  CudaLinear piece = args;
  piece.out_dtype = args.dtype;
  piece.silu_and_mul = false;
  piece.out_stride = scratch_stride(args);
  return piece;
}

// The product of some rows goes to scratch memory, and from there through the activation.
void product_and_activation(CudaStream& stream, const CudaLinear& args) {
  const size_t size = size_of(args.dtype);
  CudaLinear piece = piece_of(args);
  const size_t first = bias_scratch_bytes(piece);
  piece.out = static_cast<char*>(stream.scratch()) + first;
  const int64_t most_rows = rows_in_scratch(args, first);
  const bool rounds = args.rounded_out.data != nullptr && can_activate_and_round(args.n / 2);
  for (int64_t row = 0; row < args.rows; row += most_rows) {
    piece.rows = std::min(most_rows, args.rows - row);
    piece.in = static_cast<const char*>(args.in) + static_cast<size_t>(row * args.in_stride) * size;
    piece.rounded_in = args.rounded_in.from_row(row, args.k);
    product(stream, piece);
    const Activation activation = {
        piece.out,
        piece.out_stride,
        piece.rows,
        args.n / 2,
        static_cast<char*>(args.out) +
            static_cast<size_t>(row * args.out_stride) * size_of(args.out_dtype),
        args.out_stride};
    if (rounds) {
      activate_and_round(stream, args.dtype, activation,
                         args.rounded_out.from_row(row, args.n / 2));
    } else {
      activate(stream, args.dtype, args.out_dtype, activation);
    }
  }
  if (args.rounded_out.data != nullptr && !rounds) round_outputs(stream, args);
}

void check_quantised(const CudaStream& stream, const CudaLinear& args) {
  const bool is_integer = args.weight.format.is_integer();
  check((is_integer ? takes_integers(args.dtype, args.weight.format)
                    : takes_float8(args.dtype, args.n, args.k)) &&
            stream.compute_capability() == 90,
        "a kernel takes the weight's format, of these sizes and on this device");
}

// linear of a float8 weight.
void float8_product(CudaStream& stream, const CudaLinear& args) {
  if (!float8_by_cublas(args)) {
    round_and_multiply(stream, args);
    if (args.rounded_out.data != nullptr) round_outputs(stream, args);
  } else if (args.silu_and_mul) {
    product_and_activation(stream, args);
  } else {
    product(stream, args);
  }
}

// linear of integers, whose inputs are in order.
void ordered_group_linear(CudaStream& stream, const CudaLinear& args) {
  if (args.rows > kMostGroupRows) {
    // skinny_linear would read the numbers before they are there.
    const CudaLinear dense = expand_groups(stream, args);
    return args.silu_and_mul ? product_and_activation(stream, dense) : product(stream, dense);
  }
  if (args.silu_and_mul && !gated_group_linear_takes(args)) {
    return product_and_activation(stream, args);
  }
  group_linear(stream, args, group_plan(args));
}

}  // namespace

void linear(CudaStream& stream, const CudaLinear& args) {
  if (args.rows == 0 || args.n == 0) return;
  const bool is_float8 = args.weight.format.kind == WeightKind::kFloat8;
  if (!args.weight.format.is_dense()) check_quantised(stream, args);
  check(args.rounded_in.data == nullptr || is_float8, "float8 weights take rounded inputs");
  check(args.rounded_out.data == nullptr ||
            (is_float8 && args.silu_and_mul && args.out_dtype == args.dtype &&
             args.n % (2 * kFloat8Block) == 0),
        "a gated product of float8 weights rounds outputs of whole blocks");
  if (args.weight.format.is_integer()) {
    return ordered_group_linear(
        stream, args.weight.permutation == nullptr ? args : order_inputs(stream, args));
  }
  if (is_float8) return float8_product(stream, args);
  if (skinny_linear_takes(stream, args)) {
    skinny_linear(stream, args, skinny_plan(args));
  } else if (args.silu_and_mul) {
    product_and_activation(stream, args);
  } else {
    product(stream, args);
  }
}

int64_t linear_cublas_rows(CudaStream& stream, const CudaLinear& args) {
  if (args.rows == 0 || args.n == 0 || args.k % 8 != 0 || !args.weight.format.is_dense()) return 0;
  if (skinny_linear_takes(stream, args)) return 0;
  return args.silu_and_mul ? std::min(args.rows, rows_in_scratch(args, 0)) : args.rows;
}

Float8Activations linear_rounded_in(CudaStream&, const CudaLinear& args) {
  if (args.weight.format.kind != WeightKind::kFloat8 || args.rows == 0 || args.n == 0) return {};
  const bool by_cublas = float8_by_cublas(args);
  if (by_cublas && has_blocks(args)) {
    // float8_linear, which stands in where cuBLAS has no kernel, wants each block's scales at
    // multiples of 4. And those of a product that runs in pieces would have gaps.
    if (args.rows % 4 != 0) return {};
    if (args.silu_and_mul &&
        args.rows > rows_in_scratch(args, bias_scratch_bytes(piece_of(args)))) {
      return {};
    }
  }
  return float8_activations(args, by_cublas);
}

}  // namespace quire::ops::cuda
