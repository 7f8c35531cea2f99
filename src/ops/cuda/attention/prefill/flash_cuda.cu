#include "ops/cuda/attention/prefill/flash.cuh"
#include "ops/cuda/attention/prefill/prefill.cuh"

namespace quire::ops::cuda {
namespace {

// Blocks that have the keys of the same rows between them: more are not in a cluster everywhere.
constexpr int kSplitBlocks = 8;
// A shorter context is not worth a cluster: two tiles for each of its blocks.
constexpr int64_t kLeastSplitContext = 2 * kSplitBlocks * kFlashKeys;
// With more, the tiles fill a device by themselves: three for each multiprocessor of an H200, four
// where most of a tile's rows are empty. Not by the device's own number, since it decides about the
// order of sums.
constexpr int64_t kMostSplitBlocks = 396;
constexpr int64_t kMostSplitBlocksOfFew = 528;
// Rows of a small tile, in four warps.
constexpr int kSmallRows = 64;

void launch_clusters(CudaStream& stream, void (*kernel)(FlashParams), dim3 grid,
                     const FlashParams& params, int shared_bytes) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = kSplitBlocks;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(kFlashThreads);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream.get();
  config.attrs = attributes;
  config.numAttrs = 2;
  check_cuda(cudaLaunchKernelEx(&config, kernel, params), "launching an attention kernel");
}

template <typename Shape>
void launch_tile(CudaStream& stream, const CudaPagedAttention& args, const FlashParams& params) {
  void (*const kernel)(FlashParams) = flash_kernel<Shape>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Shape::kSharedBytes),
             "giving an attention kernel its shared memory");
  const int64_t blocks = max_tiles(args, Shape::kRows) * args.cache.num_kv_heads * Shape::kBlocks;
  const dim3 grid(static_cast<unsigned>(blocks));
  if constexpr (Shape::kBlocks == 1) {
    launch(stream, kernel, grid, dim3(kFlashThreads), Shape::kSharedBytes, params);
  } else {
    launch_clusters(stream, kernel, grid, params, Shape::kSharedBytes);
  }
}

template <typename T, int kHeadDim, bool kIsFp8>
void launch_for_rows(CudaStream& stream, const CudaPagedAttention& args,
                     const FlashParams& params) {
  if (flash_attention_splits(stream, args)) {
    return launch_tile<FlashShape<T, kHeadDim, kIsFp8, 1, kSplitBlocks>>(stream, args, params);
  }
  if constexpr (kHeadDim <= 128) {
    using Large = FlashShape<T, kHeadDim, kIsFp8, 2>;
    // Small tiles where large ones would be half empty, or leave room on the device.
    const int64_t group = args.num_heads / args.cache.num_kv_heads;
    const int64_t rows = (args.num_tokens - args.num_decode_seqs) * group;
    const int64_t blocks = max_tiles(args, Large::kRows) * args.cache.num_kv_heads;
    if (rows > (args.num_seqs - args.num_decode_seqs) * kSmallRows &&
        blocks > Large::kBlocksTogether * stream.num_multiprocessors()) {
      return launch_tile<Large>(stream, args, params);
    }
  }
  launch_tile<FlashShape<T, kHeadDim, kIsFp8, 1>>(stream, args, params);
}

template <typename T, int kHeadDim>
void launch_for_cache(CudaStream& stream, const CudaPagedAttention& args,
                      const FlashParams& params) {
  if (is_float8(args.cache.dtype)) {
    launch_for_rows<T, kHeadDim, true>(stream, args, params);
  } else {
    launch_for_rows<T, kHeadDim, false>(stream, args, params);
  }
}

template <typename T>
bool launch_for_head_dim(CudaStream& stream, const CudaPagedAttention& args,
                         const FlashParams& params) {
  switch (args.cache.head_dim) {
    case 64:
      launch_for_cache<T, 64>(stream, args, params);
      return true;
    case 96:
      launch_for_cache<T, 96>(stream, args, params);
      return true;
    case 128:
      launch_for_cache<T, 128>(stream, args, params);
      return true;
    case 256:
      launch_for_cache<T, 256>(stream, args, params);
      return true;
    default:
      return false;
  }
}

}  // namespace

bool flash_attention_splits(const CudaStream& stream, const CudaPagedAttention& args) {
  const int64_t most_blocks =
      args.max_query_len <= kFewQueries ? kMostSplitBlocksOfFew : kMostSplitBlocks;
  const int64_t blocks = max_tiles(args, kSmallRows) * args.cache.num_kv_heads * kSplitBlocks;
  return stream.compute_capability() >= 90 && args.max_context_len >= kLeastSplitContext &&
         blocks <= most_blocks;
}

bool flash_attention(CudaStream& stream, const CudaPagedAttention& args) {
  if (stream.compute_capability() < 80) return false;
  FlashParams params;
  set_queries(params, args);
  params.keys = static_cast<const char*>(args.cache.keys);
  params.values = static_cast<const char*>(args.cache.values);
  params.key_scales = args.scales.keys;
  params.value_scales = args.scales.values;
  params.is_e5m2 = args.cache.dtype == DType::kFloat8E5M2;
  params.block_size = FastDivisor(static_cast<uint32_t>(args.cache.block_size));
  params.num_kv_heads = FastDivisor(static_cast<uint32_t>(args.cache.num_kv_heads));
  switch (args.dtype) {
    case DType::kBFloat16:
      return launch_for_head_dim<__nv_bfloat16>(stream, args, params);
    case DType::kFloat16:
      return launch_for_head_dim<__half>(stream, args, params);
    default:
      return false;
  }
}

}  // namespace quire::ops::cuda
