#pragma once
// Decode attention at the speed of memory, for 16-bit activations: decode_attention_kernel.
// launch.cuh says which head sizes it has, decode_cuda.cu chooses between it and plain.cuh. Steps
// of few sequences use decoder_step/attention.cuh, where one kernel runs the whole step.
//
// A block has warps of four kinds that never wait for each other more than they must:
//   one that finds out what the next units are and brings their queries,
//   kLoadWarps that bring tiles, 16 tokens' keys and values, as far ahead as there is room, over
//     the ends of units; several, because it takes a warp a quarter of a microsecond to start one,
//   kDecodeWarps that compute; each has its own ring of tiles in shared memory,
//   kFinishWarps that add up what these leave of a unit, and agree with other blocks on who
//     combines the chunks of a sequence.
//
// The kernel before this one in the stream writes the queries and the newest tokens of each
// sequence, one for each query, and nothing else that is read here (qk_norm_rope_cache, which lets
// this kernel start only when it has itself waited for all before it). So the first units are
// placed, and the older tokens' tiles are on their way, before that kernel has ended.
#include "core/launch.cuh"
#include "ops/cuda/attention/decode/copy.cuh"
#include "ops/cuda/attention/decode/tiles.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/ptx/warpgroup.cuh"

namespace quire::ops::cuda {

inline constexpr int kLoadWarps = 4;
inline constexpr int kMmaThreads = 32 * (kDecodeWarps + kFinishWarps + kLoadWarps + 1);

// A unit and where its tokens are: row[i] is that of tile i's first token in the cache, in rows of
// head_dim elements. A negative context length is the end of the work.
struct PlacedUnit {
  DecodeUnit unit;
  int64_t row[kWarpTiles * kDecodeWarps];
};

template <typename Shape>
struct DecodeShared {
  SharedBarrier tile_full[kDecodeWarps][kMaxDepth];
  SharedBarrier tile_free[kDecodeWarps][kMaxDepth];
  SharedBarrier unit_ready[kPlacedUnits];
  SharedBarrier query_ready[kPlacedUnits];
  SharedBarrier unit_free[kPlacedUnits];
  SharedBarrier outputs_full[kFinishWarps];
  SharedBarrier outputs_free;
  PlacedUnit units[kPlacedUnits];
  float2 maxima_sums[kDecodeWarps][Shape::kHeads];
  alignas(16) typename Shape::Operand queries[kPlacedUnits][Shape::kHeads * Shape::kQueryStride];
};

__device__ inline Tile tile_of(const PlacedUnit& placed, int number) {
  return {placed.row[number], placed.unit.chunk * kDecodeChunk + number * kTileTokens,
          placed.unit.context_len};
}

// The part of the warp that finds out what the next units are.
template <typename Shape>
__device__ void place_units(const DecodeParams& p, DecodeShared<Shape>& shared, int lane) {
  static_assert(kWarpTiles * kDecodeWarps == 32, "a lane finds a tile's blocks");
  auto index = static_cast<int>(blockIdx.x);
  const int num_units = *p.num_items * p.slots;
  DecodeItem item = p.items[index / p.slots];
  int next = 0;  // the unit after this one; lane 0 has it
  for (int turn = 0;; ++turn) {
    const int place = turn % kPlacedUnits;
    PlacedUnit& to = shared.units[place];
    const bool is_end = index >= num_units;
    DecodeUnit unit = {};
    unit.context_len = -1;
    int64_t row = 0;
    if (!is_end) {
      const int first_token = item.chunk * kDecodeChunk + lane * kTileTokens;
      const int64_t column = min(int64_t{first_token / p.block_size}, p.table_width - 1);
      const int64_t block = p.block_tables[item.seq * p.table_width + column];
      unit = make_unit(p, index, item);
      row = (block * p.num_kv_heads + unit.kv_head) * p.block_size + first_token % p.block_size;
    }
    shared.unit_free[place].wait(turn / kPlacedUnits % 2 ^ 1);
    to.row[lane] = row;
    if (lane == 0) to.unit = unit;
    __syncwarp();
    if (lane == 0) shared.unit_ready[place].arrive();
    if (is_end) return;

    // Units are placed as far ahead as there are places, their items read a turn before and their
    // numbers asked for two: so a block takes up to kPlacedUnits + 2 before its first is done. Not
    // before the kernels before have ended: they may count units too.
    if (turn == 0) {
      wait_for_previous();
      if (lane == 0) next = take_unit(p.units_taken, num_units);
    }
    QueryLoad<Shape> queries;
    queries.load(p, unit, lane);
    index = __shfl_sync(0xffffffffu, next, 0);
    if (index < num_units) {
      item = p.items[index / p.slots];
      if (lane == 0) next = take_unit(p.units_taken, num_units);
    }
    queries.store(shared.queries[place], lane);
    __syncwarp();
    if (lane == 0) shared.query_ready[place].arrive();
  }
}

// A place in a ring of tiles, and the parity of the phase that it is in there.
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;

  __device__ void advance(int depth) {
    if (++slot == depth) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// The tile in a warp's ring: keys, then values.
template <typename Shape>
__device__ __forceinline__ char* tile_data(char* tiles, int depth, int warp, int slot) {
  return tiles + 2 * Shape::kTileBytes * (depth * warp + slot);
}

// The part of the warps that bring tiles: `loader` those of kDecodeWarps / kLoadWarps others.
template <typename Shape>
__device__ void load_tiles(const DecodeParams& p, DecodeShared<Shape>& shared, char* tiles,
                           int depth, int loader, int lane) {
  constexpr int kRings = kDecodeWarps / kLoadWarps;
  RingPlace rings[kRings];
  for (int turn = 0;; ++turn) {
    const int place = turn % kPlacedUnits;
    shared.unit_ready[place].wait(turn / kPlacedUnits % 2);
    const PlacedUnit& placed = shared.units[place];
    if (placed.unit.context_len < 0) return;
    const int first_visible = placed.unit.first_visible(p.sliding_window);
    for (int i = 0; i < kWarpTiles; ++i) {
#pragma unroll
      for (int r = 0; r < kRings; ++r) {
        const int w = r * kLoadWarps + loader;
        const Tile tile = tile_of(placed, i * kDecodeWarps + w);
        if (!tile.is_visible(first_visible)) continue;
        if (tile.has_newest(placed.unit.num_queries)) wait_for_previous();
        RingPlace& ring = rings[r];
        shared.tile_free[w][ring.slot].wait(ring.parity ^ 1);
        const int64_t offset = tile.row * Shape::kRowBytes;
        char* to = tile_data<Shape>(tiles, depth, w, ring.slot);
        warp_copy(to, static_cast<const char*>(p.keys) + offset, to + Shape::kTileBytes,
                  static_cast<const char*>(p.values) + offset, Shape::kTileBytes,
                  shared.tile_full[w][ring.slot], lane);
        ring.advance(depth);
      }
    }
    __syncwarp();
    if (lane == 0) shared.unit_free[place].arrive();
  }
}

// Takes the next kTiles tiles of a warp's ring, whose numbers start at `first`, into `output`.
template <int kTiles, typename Shape>
__device__ __forceinline__ void take_tiles(const DecodeParams& p, DecodeShared<Shape>& shared,
                                           char* tiles, int depth, int place, int first,
                                           RingPlace& ring, WarpOutput<Shape>& output,
                                           const VisibleTokens<Shape>& visible, float scale,
                                           int warp, int lane) {
  const PlacedUnit& placed = shared.units[place];
  float scores[kTiles][Shape::kHeadTiles][4];
  const char* data[kTiles];
  SharedBarrier* is_free[kTiles];
#pragma unroll
  for (int s = 0; s < kTiles; ++s) {
    data[s] = tile_data<Shape>(tiles, depth, warp, ring.slot);
    is_free[s] = &shared.tile_free[warp][ring.slot];
    shared.tile_full[warp][ring.slot].wait(ring.parity);
    ring.advance(depth);
  }
#pragma unroll
  for (int s = 0; s < kTiles; ++s) {
    const Tile tile = tile_of(placed, (first + s) * kDecodeWarps + warp);
    KeyTile<Shape> keys;
    keys.load(data[s], tile, lane);
    keys.multiply(shared.queries[place], lane, scores[s]);
    scale_and_mask<Shape>(scores[s], tile, visible, scale, lane);
  }
  output.soften(scores);
#pragma unroll
  for (int s = 0; s < kTiles; ++s) {
    const Tile tile = tile_of(placed, (first + s) * kDecodeWarps + warp);
    ValueTile<Shape> values;
    values.load(data[s] + Shape::kTileBytes, tile, lane);
    output.add(values, scores[s]);
  }
  finish_reads();
  __syncwarp();
  if (lane == 0) {
#pragma unroll
    for (int s = 0; s < kTiles; ++s) is_free[s]->arrive();
  }
}

// The part of the warps that compute.
template <typename Shape>
__device__ void compute_units(const DecodeParams& p, DecodeShared<Shape>& shared, float* outputs,
                              char* tiles, int depth, int warp, int lane) {
  RingPlace ring;
  int num_outputs = 0;
  for (int turn = 0;; ++turn) {
    const int place = turn % kPlacedUnits;
    shared.unit_ready[place].wait(turn / kPlacedUnits % 2);
    const PlacedUnit& placed = shared.units[place];
    if (placed.unit.context_len < 0) return;
    WarpOutput<Shape> output;
    output.clear();
    const VisibleTokens<Shape> visible(p, placed.unit, lane);
    const float scale = score_scale<typename Shape::Kv>(p, placed.unit.kv_head);
    shared.query_ready[place].wait(turn / kPlacedUnits % 2);
    const auto is_visible = [&](int i) {
      return tile_of(placed, i * kDecodeWarps + warp)
          .is_visible(placed.unit.first_visible(p.sliding_window));
    };
    // With a ring of one the second tile comes when the first has gone.
    const bool in_pairs = Shape::kTilesPerStep == 2 && depth > 1;
    int taken = 1;
#pragma unroll 1
    for (int i = 0; i < kWarpTiles; i += taken) {
      taken = in_pairs && i + 1 < kWarpTiles && is_visible(i) && is_visible(i + 1) ? 2 : 1;
      if (taken == 2) {
        take_tiles<Shape::kTilesPerStep>(p, shared, tiles, depth, place, i, ring, output, visible,
                                         scale, warp, lane);
      } else if (is_visible(i)) {
        take_tiles<1>(p, shared, tiles, depth, place, i, ring, output, visible, scale, warp, lane);
      }
    }
    if (placed.unit.is_visible(p.sliding_window)) {
      shared.outputs_free.wait(num_outputs % 2 ^ 1);
      const int heads = placed.unit.num_rows;
      output.leave(lane, heads, shared.maxima_sums[warp], outputs + warp * heads * Shape::kHeadDim);
      __syncwarp();
      if (lane == 0) shared.outputs_full[num_outputs % kFinishWarps].arrive();
      ++num_outputs;
    }
    __syncwarp();
    if (lane == 0) shared.unit_free[place].arrive();
  }
}

// The block's sum of what its warps have left of elements e to e + 3 of a unit.
template <typename Shape>
__device__ DecodePartial sum_of_warps(const DecodeShared<Shape>& shared, const float* outputs,
                                      int heads, int e) {
  const int head = e / Shape::kHeadDim;
  DecodePartial total = {{0.0f, 0.0f, 0.0f, 0.0f}, -INFINITY, 0.0f};
#pragma unroll
  for (int w = 0; w < kDecodeWarps; ++w) {
    total.maximum = fmaxf(total.maximum, shared.maxima_sums[w][head].x);
  }
  // A query may see nothing of the chunk.
  const float base = Shape::kMany && total.maximum == -INFINITY ? 0.0f : total.maximum;
#pragma unroll
  for (int w = 0; w < kDecodeWarps; ++w) {
    const float2 maximum_sum = shared.maxima_sums[w][head];
    const float factor = fast_exp2(maximum_sum.x - base);
    const float4 value =
        *reinterpret_cast<const float4*>(outputs + w * heads * Shape::kHeadDim + e);
    total.sum += maximum_sum.y * factor;
    total.value.x += value.x * factor;
    total.value.y += value.y * factor;
    total.value.z += value.z * factor;
    total.value.w += value.w * factor;
  }
  return total;
}

// The part of the warps that add up what those that compute leave. Where there is much to do they
// take turns, so that one can wait for other blocks while the next is at work; else all do a part.
// Either way an element's sum is the same.
template <typename Shape>
__device__ void finish_units(const DecodeParams& p, DecodeShared<Shape>& shared,
                             const float* outputs, int warp, int lane) {
  int num_outputs = 0;
  wait_for_previous();
  release_next();
  const bool is_for_all = *p.num_items * p.slots <= 2 * static_cast<int>(gridDim.x);
  for (int turn = 0;; ++turn) {
    const int place = turn % kPlacedUnits;
    shared.unit_ready[place].wait(turn / kPlacedUnits % 2);
    const DecodeUnit unit = shared.units[place].unit;
    __syncwarp();
    if (unit.context_len < 0) return;
    if (lane == 0) shared.unit_free[place].arrive();
    if (!unit.is_visible(p.sliding_window)) continue;
    const int number = num_outputs++;
    const int warp_in_turn = number % kFinishWarps;
    if (!is_for_all && warp != warp_in_turn) continue;
    shared.outputs_full[warp_in_turn].wait(number / kFinishWarps % 2);
    finish_unit<typename Shape::T, Shape::kMany>(
        p, unit, is_for_all ? warp : 0, is_for_all ? kFinishWarps : 1,
        [&](int e) { return sum_of_warps<Shape>(shared, outputs, unit.num_rows, e); },
        [&] {
          __syncwarp();
          // As many arrivals either way.
          if (lane < (is_for_all ? 1 : kFinishWarps)) shared.outputs_free.arrive();
        });
  }
}

// A thread's registers from here on, called by all of a warpgroup. Those that compute need more
// than an even share, and would spill; those that load need few.
enum class Registers { kCompute = 168, kFinish = 120, kLoad = 56 };
static_assert(kDecodeWarps == 8 && kFinishWarps + 1 == 4 && kLoadWarps == 4,
              "whole warpgroups: two that compute, one that finishes and places, one that loads");
static_assert(128 * (2 * static_cast<int>(Registers::kCompute) +
                     static_cast<int>(Registers::kFinish) + static_cast<int>(Registers::kLoad)) <=
                  65536,
              "a multiprocessor has that many registers");
template <Registers kCount>
__device__ __forceinline__ void set_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (kCount == Registers::kCompute) {
    grow_registers<static_cast<int>(kCount)>();
  } else {
    shrink_registers<static_cast<int>(kCount)>();
  }
#endif
}

template <typename Shape>
__global__ void __launch_bounds__(kMmaThreads, 1)
    decode_attention_kernel(const __grid_constant__ DecodeParams p, int heads, int depth) {
  static_assert(sizeof(DecodeShared<Shape>) ==
                decode_fixed_bytes(Shape::kHeadDim, Shape::kElementBytes, Shape::kHeads));
  extern __shared__ __align__(128) char shared_bytes[];
  auto& shared = *reinterpret_cast<DecodeShared<Shape>*>(shared_bytes);
  auto* outputs = reinterpret_cast<float*>(&shared + 1);
  auto* tiles = reinterpret_cast<char*>(outputs) + decode_outputs_bytes(Shape::kHeadDim, heads);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;

  if (threadIdx.x == 0) {
    for (int w = 0; w < kDecodeWarps; ++w) {
      for (int i = 0; i < depth; ++i) {
        shared.tile_full[w][i].init(kCopyArrivals);
        shared.tile_free[w][i].init(1);
      }
    }
    for (int i = 0; i < kPlacedUnits; ++i) {
      shared.unit_ready[i].init(1);
      shared.query_ready[i].init(1);
      shared.unit_free[i].init(kDecodeWarps + kFinishWarps + kLoadWarps);
    }
    for (int i = 0; i < kFinishWarps; ++i) shared.outputs_full[i].init(kDecodeWarps);
    shared.outputs_free.init(kFinishWarps);
    fence_barrier_init();
  }
  __syncthreads();
  if (warp < kDecodeWarps) {
    set_registers<Registers::kCompute>();
    compute_units(p, shared, outputs, tiles, depth, warp, lane);
  } else if (warp <= kDecodeWarps + kFinishWarps) {
    set_registers<Registers::kFinish>();
    if (warp < kDecodeWarps + kFinishWarps) {
      finish_units(p, shared, outputs, warp - kDecodeWarps, lane);
    } else {
      place_units(p, shared, lane);
    }
  } else {
    set_registers<Registers::kLoad>();
    load_tiles(p, shared, tiles, depth, warp - (kDecodeWarps + kFinishWarps + 1), lane);
  }
}

}  // namespace quire::ops::cuda
