#include "ops/attention_flash.cuh"
#include "ops/attention_prefill.cuh"

namespace quire::ops::cuda {
namespace {

template <typename Tile>
void launch_tile(CudaStream& stream, const CudaPagedAttention& args, const FlashParams& params) {
  void (*const kernel)(FlashParams) = flash_kernel<Tile>;
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes),
      "giving an attention kernel its shared memory");
  const int64_t blocks = max_tiles(args, Tile::kRows) * args.cache.num_kv_heads;
  launch(stream, kernel, dim3(static_cast<unsigned>(blocks)), dim3(kFlashThreads),
         Tile::kSharedBytes, params);
}

template <typename T, int kHeadDim, bool kIsFp8>
void launch_for_rows(CudaStream& stream, const CudaPagedAttention& args,
                     const FlashParams& params) {
  using Small = FlashTile<T, kHeadDim, kIsFp8, 1>;
  if constexpr (kHeadDim <= 128) {
    using Large = FlashTile<T, kHeadDim, kIsFp8, 2>;
    // Small tiles where large ones would be half empty, or leave room on the device.
    const int64_t group = args.num_heads / args.cache.num_kv_heads;
    const int64_t rows = (args.num_tokens - args.num_decode_seqs) * group;
    const int64_t blocks = max_tiles(args, Large::kRows) * args.cache.num_kv_heads;
    if (rows > (args.num_seqs - args.num_decode_seqs) * Small::kRows &&
        blocks > Large::kBlocksTogether * stream.num_multiprocessors()) {
      return launch_tile<Large>(stream, args, params);
    }
  }
  launch_tile<Small>(stream, args, params);
}

template <typename T, int kHeadDim>
void launch_for_cache(CudaStream& stream, const CudaPagedAttention& args,
                      const FlashParams& params) {
  if (args.cache.dtype == DType::kFloat8E4M3) {
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

bool flash_attention(CudaStream& stream, const CudaPagedAttention& args) {
  if (stream.compute_capability() < 80) return false;
  FlashParams params;
  params.batch = tiled_batch(args);
  params.q = args.q;
  params.q_stride = args.q_stride;
  params.out = args.out;
  params.num_heads = args.num_heads;
  params.scale_log2 = args.scale * 1.4426950408889634f;
  params.sliding_window = args.sliding_window;
  params.keys = static_cast<const char*>(args.cache.keys);
  params.values = static_cast<const char*>(args.cache.values);
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
