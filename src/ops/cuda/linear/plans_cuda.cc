// How skinny_linear cuts a product, and which products it takes: what was fastest of all plans and
// cuBLAS on an H200 with the shapes of Qwen3-0.6B and 8B, as rules. They look only at the shape,
// so that a product's sums do not depend on the device.
#include <algorithm>
#include <cstdint>

#include "base/ceil_div.h"
#include "core/stream_cuda.h"
#include "ops/cuda/linear/linear.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kWideRows = 65;  // from here on tiles are wider, and two share their weights

// Fewer stages leave room for more blocks on a multiprocessor, where there are that many.
int64_t most_stages(int tile_rows, int64_t num_blocks) {
  constexpr int64_t kOneEach = 150;
  constexpr int64_t kManyEach = 300;
  if (num_blocks <= kOneEach) return 8;
  if (tile_rows <= 16) return 6;
  return tile_rows == 64 && num_blocks > kManyEach ? 3 : 4;
}

}  // namespace

SkinnyPlan skinny_plan(const CudaLinear& args) {
  if (args.rows >= kWideRows) return {64, 2 * kGroupColumns, 4, 8, 2, 1};
  SkinnyPlan plan = {64, kGroupColumns, 1, 1, 1, 1};
  for (const int rows : {32, 16, 8}) {
    if (args.rows <= rows) plan.tile_rows = rows;
  }
  const int64_t tiles = ceil_div(args.n, kGroupColumns);
  const int64_t depths = ceil_div(args.k, kDepth);
  // Enough blocks to keep a large device's memory busy, but none so small that adding up its sums
  // takes longer than they did.
  constexpr int64_t kMostBlocks = 200;
  constexpr int64_t kFewestDepths = 3;
  const int most_splits = plan.tile_rows == 64 ? 4 : 8;
  while (plan.splits < most_splits && 2 * plan.splits * tiles <= kMostBlocks &&
         depths >= 2 * plan.splits * kFewestDepths) {
    plan.splits *= 2;
  }
  plan.num_stages = static_cast<int>(
      std::min(most_stages(plan.tile_rows, tiles * plan.splits), ceil_div(depths, plan.splits)));
  return plan;
}

bool skinny_linear_takes(CudaStream& stream, const CudaLinear& args) {
  constexpr int64_t kMostTiles = 65535;
  if (stream.compute_capability() != 90 || args.dtype == DType::kFloat32 || args.k % 8 != 0 ||
      args.k > INT32_MAX || args.n > kMostTiles * kGroupColumns / 2) {
    return false;
  }
  // From here on cuBLAS is as fast but where its tiles leave most of the device idle.
  constexpr int64_t kVocabulary = 65536;
  constexpr int64_t kSmallMatrix = 4 << 20;
  if (args.rows <= 16) return true;
  if (args.rows <= 32) return args.n < kVocabulary;
  if (args.rows < kWideRows) return args.silu_and_mul || args.k >= 2 * args.n;
  return args.rows <= 128 && args.k >= 3 * args.n && args.n * args.k <= kSmallMatrix;
}

}  // namespace quire::ops::cuda
