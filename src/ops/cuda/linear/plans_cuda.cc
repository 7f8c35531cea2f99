// How skinny_linear, float8_linear and group_linear cut a product, and which products they take:
// what was fastest of all plans and cuBLAS on an H200 with the shapes of Qwen3-0.6B and 8B, as
// rules. They look only at the shape, so that a product's sums do not depend on the device.
#include <algorithm>
#include <cstdint>

#include "base/ceil_div.h"
#include "core/stream_cuda.h"
#include "ops/cuda/linear/float8.cuh"
#include "ops/cuda/linear/group.cuh"
#include "ops/cuda/linear/linear.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kWideRows = 65;  // from here on tiles are wider, and two share their weights

// Blocks of skinny_linear that the device holds at once with so many on a multiprocessor. What does
// not fit runs when others are done, on a part of the device: with 64 rows 448 tiles of 4,096
// inputs take 1.4 times as long as 384, which fit by threes.
constexpr int64_t blocks_at_once(int64_t of_multiprocessor) {
  constexpr int64_t kMultiprocessors = 132;
  return of_multiprocessor * kMultiprocessors;
}

// Fewer stages leave room for more blocks on a multiprocessor, where there are that many.
int64_t most_stages(int tile_rows, int splits, int64_t num_blocks) {
  if (tile_rows == 64) {
    // Clusters of four do not fill the device: of 32, one a multiprocessor, some find no room.
    const int64_t one_each = splits >= 4 ? 124 : blocks_at_once(1);
    return num_blocks <= one_each ? 8 : num_blocks <= blocks_at_once(2) ? 5 : 3;
  }
  constexpr int64_t kFewBlocks = 150;
  if (num_blocks <= kFewBlocks) return 8;
  return tile_rows <= 16 ? 6 : 4;
}

// Tiles are 64 rows by twice the columns. A multiprocessor holds one, two or three of them.
SkinnyPlan wide_plan(int64_t n) {
  const int64_t tiles = ceil_div(n, 2 * kGroupColumns);
  const int num_stages = tiles > blocks_at_once(3) ? 8 : tiles > blocks_at_once(2) ? 3 : 4;
  return {64, 2 * kGroupColumns, 1, num_stages, 1, 1};
}

// Parts of k: enough blocks to keep a large device's memory busy, but none so small that adding up
// its sums takes longer than they did.
int num_splits(int tile_rows, int64_t tiles, int64_t depths) {
  constexpr int64_t kMostHalves = 200;
  constexpr int64_t kMostBlocks = 232;
  constexpr int64_t kFewestDepths = 3;
  const int most = tile_rows == 64 ? 4 : 8;
  int splits = 1;
  while (splits < most && 2 * splits * tiles <= (splits == 1 ? kMostHalves : kMostBlocks) &&
         depths >= 2 * splits * kFewestDepths) {
    splits *= 2;
  }
  // In two parts some multiprocessors would have one block, and others two.
  constexpr int64_t kManyDepths = 128;
  constexpr int64_t kMostByThrees = 372;
  const bool is_uneven = 2 * tiles > blocks_at_once(1) && 4 * tiles <= kMostByThrees;
  if (tile_rows >= 32 && splits == 2 && is_uneven && depths >= kManyDepths) return 4;
  return splits;
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
  if (plan.tile_rows == 64 && tiles > blocks_at_once(3)) return wide_plan(args.n);
  plan.splits = num_splits(plan.tile_rows, tiles, depths);
  plan.num_stages =
      static_cast<int>(std::min(most_stages(plan.tile_rows, plan.splits, tiles * plan.splits),
                                ceil_div(depths, plan.splits)));
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

Float8Plan float8_plan(const CudaLinear& args) {
  Float8Plan plan = {64, kGroupColumns, 1, 3};
  for (const int rows : {32, 16, 8}) {
    if (args.rows <= rows) plan.tile_rows = rows;
  }
  // A multiprocessor holds three blocks of 64 x 64, or two of twice the width: the latter where
  // those are on the device at once, and of the former some would run in a second turn.
  const bool fits_wide = ceil_div(args.n, kGroupColumns) > blocks_at_once(3) &&
                         ceil_div(args.n, 2 * kGroupColumns) <= blocks_at_once(2);
  const bool is_wide =
      !has_blocks(args) && (args.rows > plan.tile_rows || (plan.tile_rows == 64 && fits_wide));
  if (is_wide) plan.tile_columns = 2 * kGroupColumns;
  const int64_t tiles = ceil_div(args.rows, plan.tile_rows) * ceil_div(args.n, plan.tile_columns);
  // Several blocks a multiprocessor, of this product or the next: one of them reads while another
  // starts or ends. More of them have more sums to add up.
  int64_t most_blocks = plan.tile_rows == 64 ? 300 : 400;
  if (plan.tile_rows <= 16 && !has_blocks(args)) most_blocks = 512;
  if (is_wide) most_blocks = 200;
  const int64_t depths = args.k / kFloat8Block;
  constexpr int64_t kFewestDepths = 2;
  while (plan.splits < 8 && 2 * plan.splits * tiles <= most_blocks &&
         depths >= 2 * plan.splits * kFewestDepths) {
    plan.splits *= 2;
  }
  constexpr int64_t kMultiprocessors = 132;
  const int64_t own_depths = ceil_div(depths, plan.splits);
  const bool is_long = plan.tile_rows <= 32 && own_depths >= 16;
  if (is_long || (is_wide && tiles * plan.splits <= kMultiprocessors)) plan.num_stages = 6;
  // With 8 rows four blocks would fit a multiprocessor, and the device be done before those that
  // have four.
  if (is_long) plan.tile_rows = std::max(plan.tile_rows, 16);
  plan.num_stages = static_cast<int>(std::min<int64_t>(plan.num_stages, own_depths));
  return plan;
}

namespace {

// How much of the device is busy until the last of so many equal blocks is done.
bool fills_device(int64_t num_blocks) {
  const int64_t turns = ceil_div(num_blocks, blocks_at_once(1));
  return 10 * num_blocks >= 9 * turns * blocks_at_once(1);
}

// Parts of k, as many as fit in so many blocks, and deep enough each.
int group_splits(int64_t tiles, int64_t depths, int most_splits, int64_t most_blocks) {
  int splits = 1;
  while (splits < most_splits && 2 * splits * tiles <= most_blocks && depths >= 4 * splits) {
    splits *= 2;
  }
  return splits;
}

GroupPlan few_rows_plan(int tile_rows, int64_t n, int64_t depths) {
  GroupPlan plan = {tile_rows, 1, 1, 1, 1};
  const int64_t tiles = ceil_div(n, kGroupColumns);
  constexpr int64_t kMostBlocks = 600;
  const auto gains = [&] {
    const int64_t blocks = plan.splits * tiles;
    if (depths < 4 * plan.splits) return false;
    // A device that is full gains from more blocks only where each has much to do.
    constexpr int64_t kManyDepths = 16;
    if (blocks < kMostBlocks / 2) return true;
    return blocks < kMostBlocks && depths >= 2 * kManyDepths * plan.splits;
  };
  while (plan.splits < 8 && gains()) plan.splits *= 2;
  const int64_t own_depths = depths / plan.splits;
  plan.num_stages = own_depths <= 8 ? 6 : 4;
  if (tile_rows == 8) plan.num_stages = own_depths <= 8 || plan.splits <= 2 ? 8 : 6;
  plan.num_in_stages = 4;
  return plan;
}

GroupPlan middle_rows_plan(int64_t rows, int64_t n, int64_t depths) {
  const int64_t tiles = ceil_div<int64_t>(rows, 64) * ceil_div(n, kGroupColumns);
  const int splits = group_splits(tiles, depths, 8, rows <= 64 ? 256 : 400);
  const int num_stages = splits <= 2 && splits * tiles <= blocks_at_once(2) ? 3 : 2;
  return {64, 1, splits, num_stages, num_stages};
}

// Three warpgroups share activations where their tiles fill the device, one block a multiprocessor;
// else blocks are of one warpgroup, two a multiprocessor.
GroupPlan many_rows_plan(int64_t rows, int64_t n, int64_t depths) {
  constexpr int kRows = 128;
  constexpr int kShared = 3;
  const auto tiles = [&](int64_t warpgroups) {
    return ceil_div(rows, kRows) * ceil_div(n, warpgroups * kGroupColumns);
  };
  const int splits = group_splits(tiles(kShared), depths, 2, blocks_at_once(1));
  if (fills_device(splits * tiles(kShared))) return {kRows, kShared, splits, 3, 3};
  return {kRows, 1, group_splits(tiles(1), depths, 8, blocks_at_once(2)), 3, 3};
}

}  // namespace

GroupPlan group_plan(const CudaLinear& args) {
  const int64_t depths = ceil_div(args.k, kTileInputs);
  GroupPlan plan = args.rows <= 8     ? few_rows_plan(8, args.n, depths)
                   : args.rows <= 16  ? few_rows_plan(16, args.n, depths)
                   : args.rows <= 128 ? middle_rows_plan(args.rows, args.n, depths)
                                      : many_rows_plan(args.rows, args.n, depths);
  plan.num_stages = static_cast<int>(std::min<int64_t>(plan.num_stages, depths / plan.splits));
  plan.num_in_stages = std::min(plan.num_in_stages, plan.num_stages);
  return plan;
}

bool float8_by_cublas(const CudaLinear& args) {
  // It adds no bias to a float32 output that is not rounded, and its rows of blocks' scales start
  // at multiples of 4.
  if (args.bias != nullptr && args.out_dtype == DType::kFloat32) return false;
  if (has_blocks(args) && args.k % (4 * kFloat8Block) != 0) return false;
  constexpr int64_t kFewRows = 64;
  constexpr int64_t kFewColumns = 8192;
  if (args.rows <= kFewRows) return false;
  return args.rows > 2 * kFewRows || has_blocks(args) || args.n > kFewColumns;
}

}  // namespace quire::ops::cuda
