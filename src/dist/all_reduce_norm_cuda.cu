#include <algorithm>
#include <type_traits>

#include "core/launch.cuh"
#include "core/warp_sum.cuh"
#include "dist/all_reduce_norm_cuda.h"
#include "dist/one_shot_cuda.cuh"

namespace quire {
namespace {

using namespace one_shot_internal;

constexpr int kWarpSize = 32;
constexpr int kMaxNormThreads = 512;

// Shared memory for the sums of a block's warps: two rows in turn use it, so one barrier a row is
// enough.
using WarpSums = float[2][kMaxNormThreads / kWarpSize];

// The part of a row that a thread has: kChunks chunks, blockDim.x apart, in registers.
template <typename T, int kChunks>
class RowPart {
 public:
  static constexpr int kFloats = 4 * Word<T>::kFloats;  // in a chunk

  __device__ explicit RowPart(const PeerAddNorm& args)
      : args_(args), row_chunks_(static_cast<int>(args.n) / kFloats) {}

  // Before add_norm_rows(). Weights come from memory: a kernel calls this where it has to wait
  // in any case.
  __device__ void load_weights() {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (!has(i)) continue;
#pragma unroll
      for (int j = 0; j < kFloats; j += 4) {
        *reinterpret_cast<float4*>(&weights_[i][j]) =
            *reinterpret_cast<const float4*>(args_.weight + column(i) * kFloats + j);
      }
    }
  }

  __device__ int column(int i) const {
    return static_cast<int>(i * blockDim.x + threadIdx.x);
  }
  __device__ bool has(int i) const {
    return column(i) < row_chunks_;
  }
  __device__ int64_t chunk_of(int64_t row, int i) const {
    return row * row_chunks_ + column(i);
  }
  __device__ int64_t num_chunks() const {
    return args_.rows * row_chunks_;
  }

  // The block's rows: blockIdx.x, and so on. receive(c) is the ranks' sum of chunk c.
  template <typename Receive>
  __device__ void add_norm_rows(WarpSums& warp_sums, const Receive& receive) const {
    int turn = 0;
    for (int64_t row = blockIdx.x; row < args_.rows; row += gridDim.x, turn ^= 1) {
      add_norm(row, warp_sums[turn], receive);
    }
  }

 private:
  // warp_sums is written anew: between two rows with the same one lies a barrier.
  template <typename Receive>
  __device__ void add_norm(int64_t row, float* warp_sums, const Receive& receive) const {
    auto* residual = static_cast<uint4*>(args_.residual);
    float values[kChunks][kFloats];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (!has(i)) continue;
      const int64_t c = chunk_of(row, i);
      const uint4 before = residual[c];
      float sums[kFloats];
      unpack<T>(receive(c), sums);
      unpack<T>(before, values[i]);
#pragma unroll
      for (int j = 0; j < kFloats; ++j) values[i][j] += sums[j];
      const uint4 rounded = pack<T>(values[i]);
      residual[c] = rounded;
      unpack<T>(rounded, values[i]);
#pragma unroll
      for (int j = 0; j < kFloats; ++j) squares += values[i][j] * values[i][j];
    }
    const float scale =
        rsqrtf(block_sum(squares, warp_sums) / static_cast<float>(args_.n) + args_.eps);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (!has(i)) continue;
#pragma unroll
      for (int j = 0; j < kFloats; ++j) values[i][j] = values[i][j] * scale * weights_[i][j];
      static_cast<uint4*>(args_.out)[chunk_of(row, i)] = pack<T>(values[i]);
    }
  }

  __device__ static float block_sum(float value, float* warp_sums) {
    value = warp_sum(value);
    const unsigned lane = threadIdx.x % kWarpSize;
    if (lane == 0) warp_sums[threadIdx.x / kWarpSize] = value;
    __syncthreads();
    return warp_sum(lane < blockDim.x / kWarpSize ? warp_sums[lane] : 0.0f);
  }

  const PeerAddNorm& args_;
  int row_chunks_;
  float weights_[kChunks][kFloats];
};

// Leaves registers for a block of the next kernel, which then prepares while this one waits.
template <int kPeers, int kChunks>
constexpr int kLeastBlocks = kPeers <= 4 && kChunks == 1 ? 2 : 1;

// A block sends, adds and norms the same rows.
template <typename T, int kPeers, int kChunks>
__global__ void __launch_bounds__(kMaxNormThreads, kLeastBlocks<kPeers, kChunks>)
    one_shot_add_norm_kernel(PeerView peers, PeerAddNorm args) {
  __shared__ WarpSums warp_sums;
  RowPart<T, kChunks> part(args);
  const auto* x = static_cast<const uint4*>(args.x);
  const int64_t num_chunks = part.num_chunks();
  release_next();
  wait_for_previous();
  uint4 own[kChunks] = {};  // of the block's first row, read while the turn is
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    if (part.has(i)) own[i] = x[part.chunk_of(blockIdx.x, i)];
  }
  const int64_t half = take_turn(peers);
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (!part.has(i)) continue;
      const int64_t c = part.chunk_of(row, i);
      if (row != blockIdx.x) own[i] = x[c];
      send_to_others<kPeers>(peers, half + peers.rank * num_chunks + c, own[i]);
    }
  }
  part.load_weights();
  const auto receive_chunk = [&](int64_t c) {
    return receive_sum<T, kPeers>(peers, x[c], half + c, num_chunks);
  };
  part.add_norm_rows(warp_sums, receive_chunk);
}

// The sums of a row come from several ranks and, where they are this rank's, from several blocks:
// all of them go through the region.
template <typename T, int kPeers, int kChunks>
__global__ void __launch_bounds__(kMaxNormThreads, kLeastBlocks<kPeers, kChunks>)
    two_shot_add_norm_kernel(PeerView peers, PeerAddNorm args) {
  __shared__ WarpSums warp_sums;
  RowPart<T, kChunks> part(args);
  const auto* x = static_cast<const uint4*>(args.x);
  const int64_t num_chunks = part.num_chunks();
  release_next();
  wait_for_previous();
  const int64_t half = take_turn(peers);
  const TwoShot layout(peers, half, num_chunks);
  sum_slices<T, kPeers>(
      peers, half, layout,
      [&](int64_t c) { return c < num_chunks ? x[c] : make_uint4(0, 0, 0, 0); },
      [&](int64_t c, uint4 sum) { store_word4(peers.own + layout.sums + c, sendable(sum)); });
  part.load_weights();
  const auto receive_chunk = [&](int64_t c) { return receive(peers, layout.sums + c); };
  const int64_t beyond = num_chunks + spread_thread();
  if (beyond < peers.size * layout.slice) receive_chunk(beyond);
  part.add_norm_rows(warp_sums, receive_chunk);
}

using Kernel = void (*)(PeerView, PeerAddNorm);

enum class Shots { kOne, kTwo };

// With two ranks what fits the memory in two shots fits it in one.
constexpr bool takes_two_shots(int size) {
  return size > 2;
}

template <int kPeers, int kChunks>
Kernel kernel_of(Shots shots, DType dtype) {
  const auto of_type = [shots](auto element) -> Kernel {
    using T = decltype(element);
    if constexpr (takes_two_shots(kPeers)) {
      if (shots == Shots::kTwo) return two_shot_add_norm_kernel<T, kPeers, kChunks>;
    }
    return one_shot_add_norm_kernel<T, kPeers, kChunks>;
  };
  switch (dtype) {
    case DType::kBFloat16:
      return of_type(__nv_bfloat16());
    case DType::kFloat16:
      return of_type(__half());
    default:
      return of_type(0.0f);
  }
}

// For the least group size and row that are enough. chunks: a thread's, 1 or 2.
Kernel kernel_for(Shots shots, int size, int chunks, DType dtype) {
  const auto of_size = [=](auto peers) -> Kernel {
    constexpr int kPeers = decltype(peers)::value;
    return chunks == 1 ? kernel_of<kPeers, 1>(shots, dtype) : kernel_of<kPeers, 2>(shots, dtype);
  };
  if (size == 2) return of_size(std::integral_constant<int, 2>());
  if (size <= 4) return of_size(std::integral_constant<int, 4>());
  return of_size(std::integral_constant<int, kMaxPeers>());
}

}  // namespace

bool peer_all_reduce_add_norm(CudaStream& stream, const PeerView& peers, const PeerAddNorm& args) {
  const int64_t row_bytes = args.n * static_cast<int64_t>(size_of(args.dtype));
  const int64_t row_chunks = row_bytes / kChunkBytes;
  const int64_t bytes = args.rows * row_bytes;
  if (row_bytes % kChunkBytes != 0 || row_chunks > 2 * kMaxNormThreads) return false;
  const bool in_one_shot = is_one_shot(peers.size, bytes);
  if (!in_one_shot && (!takes_two_shots(peers.size) || bytes > max_two_shot_bytes(peers.size))) {
    return false;
  }
  const int chunks = row_chunks <= kMaxNormThreads ? 1 : 2;
  const int64_t threads =
      ((row_chunks + chunks - 1) / chunks + kWarpSize - 1) / kWarpSize * kWarpSize;
  const int64_t blocks = std::min<int64_t>(args.rows, stream.num_multiprocessors());
  launch(stream,
         kernel_for(in_one_shot ? Shots::kOne : Shots::kTwo, peers.size, chunks, args.dtype),
         dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), 0, peers, args);
  return true;
}

void load_all_reduce_norm_kernels(int size) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const int chunks : {1, 2}) {
      for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
        if (shots == Shots::kTwo && !takes_two_shots(size)) continue;
        cudaFuncAttributes attributes = {};
        check_cuda(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(
                                                          kernel_for(shots, size, chunks, dtype))),
                   "loading a kernel");
      }
    }
  }
}

}  // namespace quire
