// Columns of an embedding's A, of the tokens of rows with adapters.
#include <algorithm>
#include <type_traits>

#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora/rows.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kThreads = 128;

// A number a thread: rank by rank of a row, then of the next. Each comes from another row of A, so
// that there is nothing to gain from order. Grid: items, ranks.
template <typename T, bool kPairs>
__global__ __launch_bounds__(kThreads) void look_up(const __grid_constant__ CudaLoraLookUp args) {
  release_next();
  const LoraBlock block = lora_block(args.rows, args.layers, args.layer_stride, blockIdx.x);
  wait_for_previous();
  if (block.layer == nullptr) return;
  const int ranks = block.layer->ranks;
  const auto* matrix = static_cast<const T*>(block.layer->a);
  const int step = static_cast<int>(gridDim.y) * kThreads;
  for (int i = blockIdx.y * kThreads + threadIdx.x; i < ranks * block.item.count; i += step) {
    const int row = local_row(args.rows, block.item, i / ranks);
    if (row < 0) continue;
    const int rank = i % ranks;
    const T value = matrix[rank * args.k + args.ids[row]];
    if constexpr (kPairs) {
      T* const to = static_cast<T*>(args.t) + 2 * row * args.max_ranks + rank;
      to[0] = value;
      to[args.max_ranks] = from_float<T>(0.0f);
    } else {
      static_cast<float*>(args.t)[row * args.max_ranks + rank] = to_float(value);
    }
  }
}

}  // namespace

void lora_look_up(CudaStream& stream, const CudaLoraLookUp& args) {
  if (args.rows.num_rows == 0 || args.rows.max_items == 0 || args.max_ranks == 0) return;
  // A thread has one number of an item.
  const int64_t rows = std::min<int64_t>(args.rows.num_rows, kLoraItemRows);
  const int64_t blocks = ceil_div<int64_t>(args.max_ranks * rows, kThreads);
  const dim3 grid(static_cast<unsigned>(args.rows.max_items), static_cast<unsigned>(blocks));
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      if (args.pairs) return launch(stream, look_up<T, true>, grid, dim3(kThreads), 0, args);
    }
    launch(stream, look_up<T, false>, grid, dim3(kThreads), 0, args);
  });
}

}  // namespace quire::ops::cuda
