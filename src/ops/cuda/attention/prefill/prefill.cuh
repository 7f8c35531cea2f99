#pragma once
// Attention of sequences with any number of queries over the paged cache, by the kernel that suits
// the device, the element type and the head size. Each function takes the sequences
// [num_decode_seqs, num_seqs) and queues its work; the others' rows of `out` stay as they are.
//
// The queries of a sequence and the heads that share a KV head are laid out as one list of rows,
// row = query * (num_heads / num_kv_heads) + head of the group, and cut into tiles: so that a tile
// of keys and values, once loaded, serves the whole group.
//
// Thread safety: one thread at a time on a stream.
#include "ops/cuda/kernels.h"

namespace quire::ops::cuda {

// wgmma and the bulk copy engine: compute capability 9.0. False: not supported, nothing was queued.
bool hopper_attention(CudaStream& stream, const CudaPagedAttention& args);

// mma.sync: bfloat16 and float16 with head sizes 64, 96, 128 and 256, from compute capability 8.0
// on. False: not supported, nothing was queued.
bool flash_attention(CudaStream& stream, const CudaPagedAttention& args);
// So few queries of a sequence leave most of a tile empty.
inline constexpr int64_t kFewQueries = 32;
// Whether flash_attention() cuts the keys of each row among several multiprocessors, which fills
// the device where there are few rows and many keys.
bool flash_attention_splits(const CudaStream& stream, const CudaPagedAttention& args);

// Everything else with head sizes up to kMaxHeadDim: float32, any head size. Throws Error
// beyond that.
void plain_attention(CudaStream& stream, const CudaPagedAttention& args);

}  // namespace quire::ops::cuda
