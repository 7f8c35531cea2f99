// A layer's product with what adapters add to it, of a step of few rows.
//
// The first kernel, lora_shrink, makes t; the second is skinny_linear's, which starts when all
// blocks of the first run. It has the activations as soon as the first finds them written, and
// waits for the first itself only before it multiplies t by B, behind its own product. So what is
// left of the first kernel then is all that it waits for.
#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "core/launch.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/linear.cuh"
#include "ops/cuda/linear/skinny_kernel.cuh"
#include "ops/cuda/lora/product.cuh"
#include "ops/cuda/lora/shrink.cuh"
#include "ops/cuda/lora_product_kernels.h"

namespace quire::ops::cuda {
namespace {

template <typename T, int kGroups, int kTileRows, bool kGated>
__global__ __maxnreg__(kGroups > 1 ? 96 : 104) void adapted_linear(
    const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap in_map,
    const __grid_constant__ SkinnyArgs args, const __grid_constant__ AdditionArgs adapters) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  AdapterAddition<T, kGated> addition(adapters);
  skinny_product<T, kGroups, kTileRows>(weight_map, in_map, args, addition);
#else
  __trap();  // rather than leave the outputs as they are
#endif
}

template <typename T, int kGroups, int kTileRows>
void launch_tile(CudaStream& stream, const CudaLoraLinear& args, const SkinnyPlan& plan) {
  AdditionArgs addition = {.items = args.rows.items,
                           .num_items = args.rows.num_items,
                           .max_items = static_cast<int>(args.rows.max_items),
                           .layers = args.layers,
                           .layer_stride = args.layer_stride,
                           .tiles = args.tiles,
                           .num_parts = args.num_parts,
                           .first_output = {},
                           .num_outputs = {}};
  for (int part = 0; part < args.num_parts; ++part) {
    addition.first_output[part] = static_cast<int>(args.first_output[part]);
    addition.num_outputs[part] = static_cast<int>(args.num_outputs[part]);
  }
  const auto kernel = args.product.silu_and_mul ? adapted_linear<T, kGroups, kTileRows, true>
                                                : adapted_linear<T, kGroups, kTileRows, false>;
  launch_skinny<kGroups, kTileRows>(stream, kernel, args.product, plan, addition);
}

template <typename T>
void launch_of_type(CudaStream& stream, const CudaLoraLinear& args, const SkinnyPlan& plan) {
  const bool wide = plan.tile_columns == 2 * kGroupColumns;
  switch (plan.tile_rows) {
    case 8:
      return launch_tile<T, 1, 8>(stream, args, plan);
    case 16:
      return launch_tile<T, 1, 16>(stream, args, plan);
    case 32:
      return launch_tile<T, 1, 32>(stream, args, plan);
    default:
      check(plan.tile_rows == 64, "a plan's tile has a kernel");
      return wide ? launch_tile<T, 2, 64>(stream, args, plan)
                  : launch_tile<T, 1, 64>(stream, args, plan);
  }
}

constexpr int kClearThreads = 256;

// Does not release the next kernel early: what comes later may look at the memory before it has
// waited.
__global__ __launch_bounds__(kClearThreads) void clear(uint4* memory, int64_t count) {
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kClearThreads + threadIdx.x;
  if (i < count) memory[i] = make_uint4(0, 0, 0, 0);
}

// Parts of k in the first kernel. Its blocks take room from those of the second until they end.
int num_splits(const CudaLoraLinear& args) {
  constexpr int64_t kMostBlocks = 256;
  constexpr int64_t kBlockRanks = 16;
  const int64_t groups = args.tiles.num_slots * ceil_div(args.max_ranks, kBlockRanks);
  int splits = lora_splits(args.product.rows, args.product.k);
  while (splits > 2 && splits * groups > kMostBlocks) splits /= 2;
  return splits;
}

}  // namespace

void lora_begin(CudaStream& stream, const CudaLoraBegin& args) {
  const int64_t count = ceil_div<int64_t>(args.bytes, sizeof(uint4));
  if (count == 0) return;
  launch(stream, clear, static_cast<unsigned>(ceil_div<int64_t>(count, kClearThreads)),
         kClearThreads, 0, static_cast<uint4*>(args.memory), count);
}

bool lora_linear_takes(CudaStream& stream, const CudaLoraLinear& args) {
  constexpr int64_t kMostTiles = 65535;
  if (stream.compute_capability() != 90 || !takes_lora_linear(args) || args.product.k > INT32_MAX ||
      args.product.n > kMostTiles * kGroupColumns / 2) {
    return false;
  }
  if (args.product.silu_and_mul) return true;
  const int tile = skinny_plan(args.product).tile_columns;
  return std::all_of(args.first_output, args.first_output + args.num_parts,
                     [&](int64_t first) { return first % tile == 0; });
}

void lora_linear(CudaStream& stream, const CudaLoraLinear& args) {
  check(fits_lora_linear(args), "the layer's sizes are what the kernel takes");
  lora_shrink_to_tiles(stream,
                       {.dtype = args.product.dtype,
                        .rows = args.rows,
                        .layers = args.layers,
                        .layer_stride = args.layer_stride,
                        .x = args.product.in,
                        .x_stride = args.product.in_stride,
                        .k = args.product.k,
                        .max_ranks = args.max_ranks,
                        .splits = num_splits(args),
                        .pairs = true,
                        .t = nullptr},
                       args.tiles);
  const SkinnyPlan plan = skinny_plan(args.product);
  if (args.product.dtype == DType::kFloat16) {
    launch_of_type<__half>(stream, args, plan);
  } else {
    launch_of_type<__nv_bfloat16>(stream, args, plan);
  }
}

}  // namespace quire::ops::cuda
