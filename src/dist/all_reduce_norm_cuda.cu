#include <algorithm>

#include "core/launch.cuh"
#include "dist/all_reduce_norm_cuda.h"
#include "dist/one_shot_cuda.cuh"

namespace quire {
namespace {

using namespace one_shot_internal;

constexpr int kWarpSize = 32;
constexpr int kMaxNormThreads = 512;

// A block's rows stay in registers: kChunks chunks a thread.
template <typename T, int kPeers, int kChunks>
__global__ void __launch_bounds__(kMaxNormThreads)
    all_reduce_add_norm_kernel(PeerView peers, PeerAddNorm args) {
  constexpr int kFloats = 4 * Word<T>::kFloats;  // in a chunk
  __shared__ float of_warps[2][kMaxNormThreads / kWarpSize];
  const auto* x = static_cast<const uint4*>(args.x);
  auto* residual = static_cast<uint4*>(args.residual);
  auto* out = static_cast<uint4*>(args.out);
  const int64_t row_chunks = args.n / kFloats;
  const int64_t num_chunks = args.rows * row_chunks;
  const auto column = [&](int i) { return int64_t{i} * blockDim.x + threadIdx.x; };

  float weights[kChunks][kFloats];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    if (column(i) >= row_chunks) continue;
#pragma unroll
    for (int j = 0; j < kFloats; j += 4) {
      *reinterpret_cast<float4*>(&weights[i][j]) =
          *reinterpret_cast<const float4*>(args.weight + column(i) * kFloats + j);
    }
  }
  release_next();
  wait_for_previous();
  uint4 own[kChunks] = {};  // of the block's first row, read while the turn is
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    if (column(i) < row_chunks) own[i] = x[blockIdx.x * row_chunks + column(i)];
  }
  const int64_t half = take_turn(peers);
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (column(i) >= row_chunks) continue;
      const int64_t c = row * row_chunks + column(i);
      if (row != blockIdx.x) own[i] = x[c];
      send_to_others<kPeers>(peers, half + peers.rank * num_chunks + c, own[i]);
    }
  }
  int turn = 0;  // two rows in turn use the shared memory, so one barrier a row is enough
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x, turn ^= 1) {
    float values[kChunks][kFloats];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (column(i) >= row_chunks) continue;
      const int64_t c = row * row_chunks + column(i);
      const uint4 mine = x[c];
      const uint4 before = residual[c];
      uint4 others[kPeers];
      receive_from_others(peers, half + c, num_chunks, others);
      float sums[kFloats];
      unpack<T>(sum_in_order<T>(peers, mine, others), sums);
      unpack<T>(before, values[i]);
#pragma unroll
      for (int j = 0; j < kFloats; ++j) values[i][j] += sums[j];
      const uint4 rounded = pack<T>(values[i]);
      residual[c] = rounded;
      unpack<T>(rounded, values[i]);
#pragma unroll
      for (int j = 0; j < kFloats; ++j) squares += values[i][j] * values[i][j];
    }
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
      squares += __shfl_xor_sync(0xffffffffu, squares, distance);
    }
    if (threadIdx.x % kWarpSize == 0) of_warps[turn][threadIdx.x / kWarpSize] = squares;
    __syncthreads();
    const unsigned lane = threadIdx.x % kWarpSize;
    squares = lane < blockDim.x / kWarpSize ? of_warps[turn][lane] : 0.0f;
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
      squares += __shfl_xor_sync(0xffffffffu, squares, distance);
    }
    const float scale = rsqrtf(squares / static_cast<float>(args.n) + args.eps);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (column(i) >= row_chunks) continue;
#pragma unroll
      for (int j = 0; j < kFloats; ++j) values[i][j] = values[i][j] * scale * weights[i][j];
      out[row * row_chunks + column(i)] = pack<T>(values[i]);
    }
  }
}

using Kernel = void (*)(PeerView, PeerAddNorm);

template <int kPeers, int kChunks>
Kernel kernel_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return all_reduce_add_norm_kernel<__nv_bfloat16, kPeers, kChunks>;
    case DType::kFloat16:
      return all_reduce_add_norm_kernel<__half, kPeers, kChunks>;
    default:
      return all_reduce_add_norm_kernel<float, kPeers, kChunks>;
  }
}

// For the least group size and row that are enough. chunks: a thread's, 1 or 2.
Kernel kernel_for(int size, int chunks, DType dtype) {
  if (size == 2) return chunks == 1 ? kernel_of<2, 1>(dtype) : kernel_of<2, 2>(dtype);
  if (size <= 4) return chunks == 1 ? kernel_of<4, 1>(dtype) : kernel_of<4, 2>(dtype);
  return chunks == 1 ? kernel_of<kMaxPeers, 1>(dtype) : kernel_of<kMaxPeers, 2>(dtype);
}

}  // namespace

bool peer_all_reduce_add_norm(CudaStream& stream, const PeerView& peers, const PeerAddNorm& args) {
  const int64_t row_bytes = args.n * static_cast<int64_t>(size_of(args.dtype));
  const int64_t row_chunks = row_bytes / kChunkBytes;
  if (row_bytes % kChunkBytes != 0 || row_chunks > 2 * kMaxNormThreads ||
      !is_one_shot(peers.size, args.rows * row_bytes)) {
    return false;
  }
  const int chunks = row_chunks <= kMaxNormThreads ? 1 : 2;
  const int64_t threads =
      ((row_chunks + chunks - 1) / chunks + kWarpSize - 1) / kWarpSize * kWarpSize;
  const int64_t blocks = std::min<int64_t>(args.rows, stream.num_multiprocessors());
  launch(stream, kernel_for(peers.size, chunks, args.dtype), dim3(static_cast<unsigned>(blocks)),
         dim3(static_cast<unsigned>(threads)), 0, peers, args);
  return true;
}

void load_all_reduce_norm_kernels(int size) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const int chunks : {1, 2}) {
      cudaFuncAttributes attributes = {};
      check_cuda(cudaFuncGetAttributes(
                     &attributes, reinterpret_cast<const void*>(kernel_for(size, chunks, dtype))),
                 "loading a kernel");
    }
  }
}

}  // namespace quire
