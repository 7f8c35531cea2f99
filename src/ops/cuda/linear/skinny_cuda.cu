// The kernel of skinny_kernel.cuh, with nothing added.
#include "base/check.h"
#include "ops/cuda/linear/skinny_kernel.cuh"

namespace quire::ops::cuda {
namespace {

template <typename T, int kGroups, int kTileRows>
__global__
__launch_bounds__(kSkinnyThreads<kGroups>, kSkinnyLeastBlocks<kGroups>) void skinny_linear_kernel(
    const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap in_map,
    const __grid_constant__ SkinnyArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  NoAddition nothing;
  skinny_product<T, kGroups, kTileRows>(weight_map, in_map, args, nothing);
#else
  __trap();  // rather than leave the outputs as they are
#endif
}

template <typename T, int kGroups, int kTileRows>
void launch_tile(CudaStream& stream, const CudaLinear& args, const SkinnyPlan& plan) {
  launch_skinny<kGroups, kTileRows>(stream, skinny_linear_kernel<T, kGroups, kTileRows>, args,
                                    plan);
}

template <typename T>
void launch_of_type(CudaStream& stream, const CudaLinear& args, const SkinnyPlan& plan) {
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

}  // namespace

void skinny_linear(CudaStream& stream, const CudaLinear& args, const SkinnyPlan& plan) {
  if (args.dtype == DType::kFloat16) {
    launch_of_type<__half>(stream, args, plan);
  } else {
    launch_of_type<__nv_bfloat16>(stream, args, plan);
  }
}

}  // namespace quire::ops::cuda
