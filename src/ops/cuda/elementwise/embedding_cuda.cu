// Rows picked from a matrix. Nothing is computed, so rows are bytes, moved in the widest words that
// their size allows.
#include <algorithm>

#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernels.h"

namespace quire::ops::cuda {
namespace {

constexpr int kWarpSize = 32;
constexpr int kWarpsPerBlock = 4;
// Words that a lane has in flight. A warp copies one piece of a row: kWarpSize * kWordsPerLane
// words.
constexpr int kWordsPerLane = 4;
constexpr int kPiece = kWarpSize * kWordsPerLane;

// out[i] = in[ids[i] - first_id], or zeros where that is outside [0, num_in_rows).
template <typename Word>
__global__ void __launch_bounds__(kWarpSize* kWarpsPerBlock)
    copy_rows(const Word* in, const int32_t* ids, int64_t first_id, int64_t num_in_rows,
              int64_t num_out_rows, int64_t words_per_row, Word* out, int64_t out_stride) {
  release_next();
  wait_for_previous();
  const int64_t out_row = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
  if (out_row >= num_out_rows) return;
  const int64_t in_row = ids[out_row] - first_id;
  const bool is_inside = in_row >= 0 && in_row < num_in_rows;
  const Word* from = in + (is_inside ? in_row : 0) * words_per_row;
  Word* to = out + out_row * out_stride;
  const int64_t step = int64_t{gridDim.y} * kPiece;
  for (int64_t piece = int64_t{blockIdx.y} * kPiece; piece < words_per_row; piece += step) {
    Word words[kWordsPerLane] = {};
#pragma unroll
    for (int i = 0; i < kWordsPerLane; ++i) {
      const int64_t at = piece + i * kWarpSize + threadIdx.x;
      if (is_inside && at < words_per_row) words[i] = from[at];
    }
#pragma unroll
    for (int i = 0; i < kWordsPerLane; ++i) {
      const int64_t at = piece + i * kWarpSize + threadIdx.x;
      if (at < words_per_row) to[at] = words[i];
    }
  }
}

// out_row_bytes: from row to row of the result.
template <typename Word>
void launch_copy_rows(CudaStream& stream, const CudaEmbedding& args, int64_t row_bytes,
                      int64_t out_row_bytes) {
  constexpr int64_t kMostGridRows = 65535;
  const int64_t words_per_row = row_bytes / static_cast<int64_t>(sizeof(Word));
  const dim3 grid(static_cast<unsigned>(ceil_div(args.num_tokens, kWarpsPerBlock)),
                  static_cast<unsigned>(std::min(ceil_div(words_per_row, kPiece), kMostGridRows)));
  launch(stream, copy_rows<Word>, grid, dim3(kWarpSize, kWarpsPerBlock), 0,
         static_cast<const Word*>(args.table), args.ids, args.first_id, args.table_rows,
         args.num_tokens, words_per_row, static_cast<Word*>(args.out),
         out_row_bytes / static_cast<int64_t>(sizeof(Word)));
}

// `out` may begin within a row of the matrix that it is a part of, so its address counts, too.
void copy_rows_of(CudaStream& stream, const CudaEmbedding& args, int64_t out_stride) {
  if (args.num_tokens == 0 || args.hidden == 0) return;
  const auto size = static_cast<int64_t>(size_of(args.dtype));
  const int64_t row_bytes = args.hidden * size;
  const int64_t out_row_bytes = out_stride * size;
  const auto together = static_cast<uint64_t>(row_bytes) | static_cast<uint64_t>(out_row_bytes) |
                        reinterpret_cast<uintptr_t>(args.out);
  if (together % 16 == 0) {
    launch_copy_rows<uint4>(stream, args, row_bytes, out_row_bytes);
  } else if (together % 4 == 0) {
    launch_copy_rows<uint32_t>(stream, args, row_bytes, out_row_bytes);
  } else {
    launch_copy_rows<uint16_t>(stream, args, row_bytes, out_row_bytes);
  }
}

}  // namespace

void embedding(CudaStream& stream, const CudaEmbedding& args) {
  copy_rows_of(stream, args, args.hidden);
}

void gather_rows(CudaStream& stream, const CudaGatherRows& args) {
  constexpr int64_t kAllRows = INT64_MAX;
  copy_rows_of(stream,
               {args.dtype, args.rows, args.num_rows, args.in, kAllRows, args.hidden, 0, args.out},
               args.out_stride == 0 ? args.hidden : args.out_stride);
}

}  // namespace quire::ops::cuda
