#pragma once
// Host code that picks the decode attention kernel of a head size and cache type. Instantiated for
// each activation type in a file of its own, to be compiled side by side.
#include <algorithm>
#include <optional>

#include "ops/cuda/attention/decode/tensor_core.cuh"

namespace quire::ops::cuda {

// decode_cuda.cu
DecodeParams decode_params(const CudaPagedAttention& args, int head_tile);

// As many blocks as the device holds, or fewer if there is less to do.
template <typename Kernel, typename... Args>
void launch_decode(CudaStream& stream, Kernel kernel, int blocks_per_multiprocessor, int threads,
                   size_t shared_bytes, int64_t max_units, const Args&... args) {
  allow_shared_memory(stream, kernel);
  const int64_t grid =
      std::min<int64_t>(max_units, blocks_per_multiprocessor * stream.num_multiprocessors());
  launch(stream, kernel, dim3(static_cast<unsigned>(grid)), dim3(static_cast<unsigned>(threads)),
         shared_bytes, args...);
}

// False where the device's shared memory does not hold what the kernel needs; nothing is queued
// then.
template <typename Shape>
bool launch_mma_shape(CudaStream& stream, const CudaPagedAttention& args) {
  const DecodeParams params = decode_params(args, Shape::kHeads);
  const int heads = std::min(params.max_rows, Shape::kHeads);
  const std::optional<int> depth = decode_depth(Shape::kHeadDim, Shape::kElementBytes,
                                                Shape::kHeads, heads, stream.max_shared_bytes());
  if (!depth) return false;
  const size_t shared_bytes =
      decode_shared_bytes(Shape::kHeadDim, Shape::kElementBytes, Shape::kHeads, heads, *depth);
  launch_decode(stream, decode_attention_kernel<Shape>, 1, kMmaThreads, shared_bytes,
                args.max_decode_items * params.slots, params, heads, *depth);
  return true;
}

template <typename T, typename Kv, bool kMany, int kHeadDim>
bool launch_mma_head_dim(CudaStream& stream, const CudaPagedAttention& args) {
  // Sixteen heads of 256 elements take more registers than there are.
  if constexpr (kMany) {
    return launch_mma_shape<DecodeShape<T, Kv, kHeadDim, kHeadDim <= 128 ? 2 : 1, true>>(stream,
                                                                                         args);
  } else {
    if constexpr (kHeadDim <= 128) {
      if (args.num_heads / args.cache.num_kv_heads > 8) {
        return launch_mma_shape<DecodeShape<T, Kv, kHeadDim, 2, false>>(stream, args);
      }
    }
    return launch_mma_shape<DecodeShape<T, Kv, kHeadDim, 1, false>>(stream, args);
  }
}

// False where no kernel is made for the head size, or none fits in the device's shared memory.
template <typename T, typename Kv, bool kMany>
bool launch_mma_cache(CudaStream& stream, const CudaPagedAttention& args) {
  switch (args.cache.head_dim) {
    case 64:
      return launch_mma_head_dim<T, Kv, kMany, 64>(stream, args);
    case 96:
      return launch_mma_head_dim<T, Kv, kMany, 96>(stream, args);
    case 128:
      return launch_mma_head_dim<T, Kv, kMany, 128>(stream, args);
    case 256:
      return launch_mma_head_dim<T, Kv, kMany, 256>(stream, args);
    default:
      return false;
  }
}

// kMany: sequences may have several queries.
template <typename T, bool kMany>
bool launch_mma_decode(CudaStream& stream, const CudaPagedAttention& args) {
  if (args.cache.dtype == DType::kFloat8E4M3) {
    return launch_mma_cache<T, __nv_fp8_e4m3, kMany>(stream, args);
  }
  if (args.cache.dtype == DType::kFloat8E5M2) {
    return launch_mma_cache<T, __nv_fp8_e5m2, kMany>(stream, args);
  }
  return launch_mma_cache<T, T, kMany>(stream, args);
}

extern template bool launch_mma_decode<__nv_bfloat16, false>(CudaStream&,
                                                             const CudaPagedAttention&);
extern template bool launch_mma_decode<__nv_bfloat16, true>(CudaStream&, const CudaPagedAttention&);
extern template bool launch_mma_decode<__half, false>(CudaStream&, const CudaPagedAttention&);
extern template bool launch_mma_decode<__half, true>(CudaStream&, const CudaPagedAttention&);

}  // namespace quire::ops::cuda
