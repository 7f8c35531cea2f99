// Prefill attention for Hopper: what the kernel of hopper_kernel.cuh takes, and its
// launch.
#include <algorithm>
#include <limits>

#include "ops/cuda/attention/prefill/hopper_kernel.cuh"
#include "ops/cuda/attention/prefill/prefill.cuh"
#include "ops/cuda/tensor_map_cuda.h"

namespace quire::ops::cuda {
namespace {

using namespace hopper;

// Elements are copied as they are, whatever they are.
CUtensorMap matrix_map(CudaStream& stream, const void* data, int64_t rows, int64_t columns,
                       int64_t row_stride, int box_rows) {
  static_assert(kSwizzleColumns == kTensorBoxColumns);
  return matrix_tensor_map(stream, CU_TENSOR_MAP_DATA_TYPE_UINT16, data, rows, columns, row_stride,
                           box_rows);
}

template <typename S>
void launch_attention(CudaStream& stream, const CudaPagedAttention& args) {
  const CudaKvCache& cache = args.cache;
  int box_rows = 16;
  while (box_rows < S::kKeys && cache.block_size % (2 * box_rows) == 0) box_rows *= 2;

  Maps maps;
  maps.q = matrix_map(stream, args.q, args.num_tokens, int64_t{args.num_heads} * S::kDim,
                      args.q_stride, kGroupQueries);
  // The number of pages is not known here; no table has one outside the cache.
  constexpr int64_t kAnyRows = std::numeric_limits<int32_t>::max();
  maps.keys = matrix_map(stream, cache.keys, kAnyRows, S::kDim, S::kDim, box_rows);
  maps.values = matrix_map(stream, cache.values, kAnyRows, S::kDim, S::kDim, box_rows);

  constexpr int kNoWindow = 1 << 30;
  AttentionSizes sizes;
  sizes.query_start = args.query_start;
  sizes.context_lens = args.context_lens;
  sizes.block_tables = args.block_tables;
  sizes.table_width = args.table_width;
  sizes.first_seq = static_cast<int>(args.num_decode_seqs);
  sizes.num_seqs = static_cast<int>(args.num_seqs);
  sizes.num_heads = args.num_heads;
  sizes.num_kv_heads = cache.num_kv_heads;
  sizes.block_size = cache.block_size;
  // Two warpgroups take two heads that share their keys rather than twice the queries: then few
  // queries fill them too.
  sizes.tile_heads = args.num_heads / cache.num_kv_heads % S::kGroups == 0 ? S::kGroups : 1;
  sizes.tile_queries = S::kGroups * kGroupQueries / sizes.tile_heads;
  sizes.box_rows = box_rows;
  sizes.sliding_window = args.sliding_window > 0 && args.sliding_window < kNoWindow
                             ? static_cast<int>(args.sliding_window)
                             : kNoWindow;
  sizes.scale_log2 = args.scale * kLog2E;
  sizes.out = args.out;
  // The first of the scratch's counters, all of them zero between kernels.
  sizes.next_tile = static_cast<int*>(args.scratch);

  const int64_t most_tiles =
      args.num_heads / sizes.tile_heads * (args.num_tokens / sizes.tile_queries + args.num_seqs);
  const auto blocks = std::min<int64_t>(stream.num_multiprocessors(), most_tiles);
  constexpr size_t kSharedBytes = 1024 + S::kTileBytes + sizeof(Control);
  check_cuda(
      cudaFuncSetAttribute(hopper_attention_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kSharedBytes)),
      "allowing the prefill attention its shared memory");
  launch(stream, hopper_attention_kernel<S>, dim3(static_cast<unsigned>(blocks)), dim3(S::kThreads),
         kSharedBytes, sizes, maps);
}

template <typename T>
bool launch_for_head_dim(CudaStream& stream, const CudaPagedAttention& args) {
  switch (args.cache.head_dim) {
    case 64:
      launch_attention<Shape<T, 64, 128, 2>>(stream, args);
      return true;
    case 128:
      launch_attention<Shape<T, 128, 128, 2>>(stream, args);
      return true;
    case 256:
      launch_attention<Shape<T, 256, 64, 2>>(stream, args);
      return true;
    default:
      return false;
  }
}

}  // namespace

bool hopper_attention(CudaStream& stream, const CudaPagedAttention& args) {
  if (stream.compute_capability() != 90 || args.cache.dtype != args.dtype) return false;
  if (args.cache.block_size % 16 != 0 || args.scratch == nullptr) return false;
  if (args.dtype == DType::kBFloat16) return launch_for_head_dim<__nv_bfloat16>(stream, args);
  if (args.dtype == DType::kFloat16) return launch_for_head_dim<__half>(stream, args);
  return false;
}

}  // namespace quire::ops::cuda
