// Rows put in their places, and columns picked from rows: what heads that make drafts know of a
// token, and their logits over a part of the vocabulary.
#include <algorithm>

#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "ops/cuda/kernels.h"

namespace quire::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostGridRows = 65535;

// Nothing is computed: rows are words, the widest that their size allows. A block has one row.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const Word* in, const int64_t* slots, int64_t words_per_row, Word* out) {
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const int64_t slot = slots[row];
  if (slot >= 0) {
    for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < words_per_row;
         i += int64_t{gridDim.y} * kThreads) {
      out[slot * words_per_row + i] = in[row * words_per_row + i];
    }
  }
  release_next();
}

template <typename Word>
void launch_scatter(CudaStream& stream, const CudaScatterRows& args, int64_t row_bytes) {
  const int64_t words_per_row = row_bytes / static_cast<int64_t>(sizeof(Word));
  const dim3 grid(
      static_cast<unsigned>(args.num_rows),
      static_cast<unsigned>(std::min(ceil_div(words_per_row, kThreads), kMostGridRows)));
  launch(stream, scatter_kernel<Word>, grid, dim3(kThreads), 0, static_cast<const Word*>(args.in),
         args.slots, words_per_row, static_cast<Word*>(args.out));
}

__global__ void __launch_bounds__(kThreads) gather_columns_kernel(CudaGatherColumns args) {
  wait_for_previous();
  const int64_t row = blockIdx.y;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < args.num_columns;
       i += int64_t{gridDim.x} * kThreads) {
    const int32_t column = args.columns[i];
    args.out[row * args.out_stride + i] =
        column < 0 ? -INFINITY : args.in[row * args.in_stride + column];
  }
  release_next();
}

}  // namespace

void scatter_rows(CudaStream& stream, const CudaScatterRows& args) {
  if (args.num_rows == 0 || args.hidden == 0) return;
  const int64_t row_bytes = args.hidden * static_cast<int64_t>(size_of(args.dtype));
  if (row_bytes % 16 == 0) {
    launch_scatter<uint4>(stream, args, row_bytes);
  } else if (row_bytes % 4 == 0) {
    launch_scatter<uint32_t>(stream, args, row_bytes);
  } else {
    launch_scatter<uint16_t>(stream, args, row_bytes);
  }
}

void gather_columns(CudaStream& stream, const CudaGatherColumns& args) {
  if (args.rows == 0 || args.num_columns == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(args.num_columns, kThreads)),
                  static_cast<unsigned>(args.rows));
  launch(stream, gather_columns_kernel, grid, dim3(kThreads), 0, args);
}

}  // namespace quire::ops::cuda
