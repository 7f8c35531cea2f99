#pragma once
// The attention of the decoder step's kernel: norm, rotation and cache write of the step's own
// heads, and attention over the paged cache.
#include "ops/decoder_step_partials.cuh"
#include "ops/decoder_step_product.cuh"
#include "ops/decoder_step_work.cuh"

namespace quire::ops::cuda::step {

// Scratch of a unit, in the block's partial sums.
template <int kHeadDim>
struct UnitScratch {
  float query[kHeadsPerUnit][kHeadDim];
  uint4 key[kHeadDim / 8];  // the step's own, as the cache holds them
  uint4 value[kHeadDim / 8];
  float sums[kWarps][kHeadsPerUnit][kHeadDim];
  float greatest[kWarps][kHeadsPerUnit];
  float weights[kWarps][kHeadsPerUnit];
  float rotated[kHeadsPerUnit + 2][kHeadDim];
};

// Reads a head of the step's qkv, norms it where it has a norm, rotates it; by one warp, into
// `out`.
template <typename T, int kHeadDim>
__device__ __forceinline__ void prepare_head(const CudaDecoderStep& args, const Word* words,
                                             uint32_t tag, const float* norm, int position,
                                             int rotary_dim, int lane, float* out) {
  constexpr int kWords = kHeadDim / 64;  // of each lane, two elements a word
  constexpr int kMaxPairs = kHeadDim / 64;
  const int half = rotary_dim / 2;
  float cosine[kMaxPairs];
  float sine[kMaxPairs];
  float weight[2 * kWords];
  // Before the wait, which hides these loads.
  const float* cos_sin = args.cos_sin + static_cast<int64_t>(position) * args.rotary_dim;
#pragma unroll
  for (int i = 0; i < kMaxPairs; ++i) {
    const int at = lane + 32 * i;
    cosine[i] = at < half ? cos_sin[at] : 1.0f;
    sine[i] = at < half ? cos_sin[half + at] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < 2 * kWords; ++i) {
    weight[i] = norm != nullptr ? norm[2 * kWords * lane + i] : 1.0f;
  }
  Word word[kWords];
  bool complete;
  do {
    complete = true;
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] = load_word(words + kWords * lane + i);
#pragma unroll
    for (int i = 0; i < kWords; ++i) complete = complete && tag_of(word[i]) == tag;
  } while (__any_sync(0xffffffffu, !complete));
  float element[2 * kWords];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const float2 pair = Elements<T>::unpack(payload_of(word[i]));
    element[2 * i] = pair.x;
    element[2 * i + 1] = pair.y;
    squares += pair.x * pair.x + pair.y * pair.y;
  }
  const float factor =
      norm != nullptr ? rsqrtf(warp_sum(squares) / static_cast<float>(kHeadDim) + args.eps) : 1.0f;
#pragma unroll
  for (int i = 0; i < 2 * kWords; ++i) {
    out[2 * kWords * lane + i] = element[i] * factor * weight[i];
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kMaxPairs; ++i) {
    const int at = lane + 32 * i;
    if (at < half) {
      const float a = out[at];
      const float b = out[at + half];
      out[at] = a * cosine[i] - b * sine[i];
      out[at + half] = b * cosine[i] + a * sine[i];
    }
  }
  __syncwarp();
}

// Queries, scaled for exp2, and the step's own key and value, which also go to the cache: one warp
// each.
template <typename T, int kHeadDim>
__device__ __forceinline__ void prepare_unit(const BlockState& block, const CudaDecoderStep& args,
                                             const CudaDecoderLayer& layer, const Word* qkv,
                                             uint32_t tag, const AttentionUnit& unit,
                                             UnitScratch<kHeadDim>& scratch) {
  const int width = (args.num_heads + 2 * args.num_kv_heads) * kHeadDim;
  const Word* row = qkv + static_cast<int64_t>(unit.row) * (width / 2);
  const auto head = [&](int index) { return row + index * (kHeadDim / 2); };
  const int position = args.positions[unit.row];
  if (block.warp >= kHeadsPerUnit + 2) return;
  float* rotated = scratch.rotated[block.warp];
  if (block.warp < kHeadsPerUnit) {
    if (block.warp < unit.num_heads) {
      prepare_head<T, kHeadDim>(args, head(unit.first_head + block.warp), tag, layer.q_norm,
                                position, args.rotary_dim, block.lane, rotated);
    }
    for (int i = block.lane; i < kHeadDim; i += 32) {
      scratch.query[block.warp][i] =
          block.warp < unit.num_heads ? rotated[i] * args.scale * kLog2E : 0.0f;
    }
    return;
  }
  if (!unit.sees_own_token()) return;
  const bool is_key = block.warp == kHeadsPerUnit;
  if (is_key) {
    prepare_head<T, kHeadDim>(args, head(args.num_heads + unit.kv_head), tag, layer.k_norm,
                              position, args.rotary_dim, block.lane, rotated);
  } else {
    prepare_head<T, kHeadDim>(args, head(args.num_heads + args.num_kv_heads + unit.kv_head), tag,
                              nullptr, position, 0, block.lane, rotated);
  }
  if (block.lane >= kHeadDim / 8) return;
  const float* from = rotated + 8 * block.lane;
  const uint4 packed =
      make_uint4(Elements<T>::pack(from[0], from[1]), Elements<T>::pack(from[2], from[3]),
                 Elements<T>::pack(from[4], from[5]), Elements<T>::pack(from[6], from[7]));
  (is_key ? scratch.key : scratch.value)[block.lane] = packed;
  if (unit.own_place < 0) return;
  static_cast<uint4*>(is_key ? layer.keys : layer.values)[unit.own_place + block.lane] = packed;
}

// A warp's part of a tile: 8 tokens, which lie side by side in one block of the cache. A lane holds
// 8 elements of one token in each load.
template <int kHeadDim>
struct TileLoads {
  static constexpr int kLanesPerToken = kHeadDim / 8;
  static constexpr int kTokensPerLoad = 32 / kLanesPerToken;
  static constexpr int kTokensPerWarp = kTileTokens / kWarps;
  static constexpr int kLoads = kTokensPerWarp / kTokensPerLoad;

  uint4 key[kLoads];
  uint4 value[kLoads];

  static __device__ __forceinline__ int token(const BlockState& block, int tile_begin, int load) {
    return tile_begin + block.warp * kTokensPerWarp + load * kTokensPerLoad +
           block.lane / kLanesPerToken;
  }

  // Where the first load of a tile is in the cache, in 16-byte words.
  static __device__ __forceinline__ int64_t place(const BlockState& block,
                                                  const CudaDecoderStep& args,
                                                  const AttentionUnit& unit, int tile_begin) {
    const int at = tile_begin + block.warp * kTokensPerWarp;
    if (at >= unit.end) return 0;
    const int block_size = args.cache.block_size;
    const auto table_index =
        static_cast<int>(__umulhi(static_cast<uint32_t>(at), block.block_size_reciprocal));
    const WorkList& work = block.work();
    const int entry = table_index - work.first_entry;
    const int64_t cache_block = unit.is_first && entry < WorkList::kMaxEntries
                                    ? work.entries[entry]
                                    : args.block_tables[unit.row * args.table_width + table_index];
    return ((cache_block * args.num_kv_heads + unit.kv_head) * block_size +
            (at - table_index * block_size)) *
               kLanesPerToken +
           block.lane;
  }
  // Tokens outside of the unit are not read, nor is the step's own, the last of the context.
  static __device__ __forceinline__ uint4 load(const BlockState& block, const AttentionUnit& unit,
                                               const void* cache, int64_t place, int tile_begin,
                                               int load) {
    const int at = token(block, tile_begin, load);
    return at < unit.begin || at >= unit.cached_end
               ? make_uint4(0, 0, 0, 0)
               : static_cast<const uint4*>(cache)[place + 32 * load];
  }

  __device__ __forceinline__ void load_all(const BlockState& block, const CudaDecoderStep& args,
                                           const CudaDecoderLayer& layer, const AttentionUnit& unit,
                                           int tile_begin) {
    const int64_t first = place(block, args, unit, tile_begin);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      key[i] = load(block, unit, layer.keys, first, tile_begin, i);
      value[i] = load(block, unit, layer.values, first, tile_begin, i);
    }
  }
};

template <typename T>
__device__ __forceinline__ void unpack8(const uint4& packed, float (&out)[8]) {
  const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = Elements<T>::unpack(pairs[i]);
    out[2 * i] = pair.x;
    out[2 * i + 1] = pair.y;
  }
}

// By value: a choice between places would keep the loaded tile out of registers.
__device__ __forceinline__ uint4 select(bool first, uint4 a, uint4 b) {
  return make_uint4(first ? a.x : b.x, first ? a.y : b.y, first ? a.z : b.z, first ? a.w : b.w);
}

// The running softmax of one query head over the tokens that a lane has seen, for 8 elements.
struct Softmax {
  float greatest = kNoScore;
  float weight = 0;
  float sum[8] = {};

  __device__ __forceinline__ void rescale(float new_greatest) {
    const float factor = exp2f(greatest - new_greatest);
    greatest = new_greatest;
    weight *= factor;
#pragma unroll
    for (float& value : sum) value *= factor;
  }
};

// Adds the tile's tokens to the states, and loads the tile after it.
template <typename T, int kHeadDim>
__device__ __forceinline__ void add_tile_tokens(
    const BlockState& block, const CudaDecoderStep& args, const CudaDecoderLayer& layer,
    const AttentionUnit& unit, int tile_begin, TileLoads<kHeadDim>& tile,
    const UnitScratch<kHeadDim>& scratch, Softmax (&state)[kHeadsPerUnit]) {
  using Loads = TileLoads<kHeadDim>;
  const int piece = block.lane % Loads::kLanesPerToken;
  float query[kHeadsPerUnit][8];
#pragma unroll
  for (int h = 0; h < kHeadsPerUnit; ++h) {
#pragma unroll
    for (int j = 0; j < 8; ++j) query[h][j] = scratch.query[h][8 * piece + j];
  }
  const uint4 own_key = scratch.key[piece];
  const uint4 own_value = scratch.value[piece];
  const int next_begin = tile_begin + kTileTokens;
  const bool has_next = next_begin < unit.end;
  const int64_t next = has_next ? Loads::place(block, args, unit, next_begin) : 0;
  float scores[Loads::kLoads][kHeadsPerUnit];
#pragma unroll
  for (int i = 0; i < Loads::kLoads; ++i) {
    float key[8];
    const bool own = Loads::token(block, tile_begin, i) == unit.cached_end;
    unpack8<T>(select(own, own_key, tile.key[i]), key);
    if (has_next) {
      tile.key[i] = Loads::load(block, unit, layer.keys, next, next_begin, i);
    }
#pragma unroll
    for (int h = 0; h < kHeadsPerUnit; ++h) {
      scores[i][h] = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) scores[i][h] += key[j] * query[h][j];
    }
  }
#pragma unroll
  for (int offset = Loads::kLanesPerToken / 2; offset > 0; offset /= 2) {
#pragma unroll
    for (auto& of_token : scores) {
#pragma unroll
      for (float& score : of_token) score += __shfl_xor_sync(0xffffffffu, score, offset);
    }
  }
  float greatest[kHeadsPerUnit];
#pragma unroll
  for (int h = 0; h < kHeadsPerUnit; ++h) greatest[h] = state[h].greatest;
#pragma unroll
  for (int i = 0; i < Loads::kLoads; ++i) {
    const int token = Loads::token(block, tile_begin, i);
    const bool seen = token >= unit.begin && token < unit.end;
#pragma unroll
    for (int h = 0; h < kHeadsPerUnit; ++h) {
      if (!seen) scores[i][h] = 2 * kNoScore;
      greatest[h] = fmaxf(greatest[h], scores[i][h]);
    }
  }
#pragma unroll
  for (int h = 0; h < kHeadsPerUnit; ++h) state[h].rescale(greatest[h]);
#pragma unroll
  for (int i = 0; i < Loads::kLoads; ++i) {
    float value[8];
    const bool own = Loads::token(block, tile_begin, i) == unit.cached_end;
    unpack8<T>(select(own, own_value, tile.value[i]), value);
    if (has_next) {
      tile.value[i] = Loads::load(block, unit, layer.values, next, next_begin, i);
    }
#pragma unroll
    for (int h = 0; h < kHeadsPerUnit; ++h) {
      const float weight = exp2f(scores[i][h] - state[h].greatest);
      state[h].weight += weight;
#pragma unroll
      for (int j = 0; j < 8; ++j) state[h].sum[j] += weight * value[j];
    }
  }
}

// Joins the states of a warp's lanes that saw different tokens, and stores them.
template <int kHeadDim>
__device__ __forceinline__ void store_warp_state(const BlockState& block, int h, Softmax& state,
                                                 UnitScratch<kHeadDim>& scratch) {
  constexpr int kLanesPerToken = TileLoads<kHeadDim>::kLanesPerToken;
  float greatest = state.greatest;
#pragma unroll
  for (int offset = kLanesPerToken; offset < 32; offset *= 2) {
    greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, offset));
  }
  state.rescale(greatest);
#pragma unroll
  for (int offset = kLanesPerToken; offset < 32; offset *= 2) {
    state.weight += __shfl_xor_sync(0xffffffffu, state.weight, offset);
#pragma unroll
    for (float& value : state.sum) value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  if (block.lane < kLanesPerToken) {
    float4* to = reinterpret_cast<float4*>(&scratch.sums[block.warp][h][8 * block.lane]);
    to[0] = make_float4(state.sum[0], state.sum[1], state.sum[2], state.sum[3]);
    to[1] = make_float4(state.sum[4], state.sum[5], state.sum[6], state.sum[7]);
  }
  if (block.lane == 0) {
    scratch.greatest[block.warp][h] = state.greatest;
    scratch.weights[block.warp][h] = state.weight;
  }
}

template <typename T, int kHeadDim>
__device__ __forceinline__ void publish_unit(const BlockState& block, const CudaDecoderStep& args,
                                             const Exchanges& exchanges, uint32_t tag,
                                             const AttentionUnit& unit,
                                             const UnitScratch<kHeadDim>& scratch) {
  if (block.thread >= kHeadsPerUnit * kHeadDim) return;
  const int h = block.thread / kHeadDim;
  const int element = block.thread % kHeadDim;
  float greatest = kNoScore;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) greatest = fmaxf(greatest, scratch.greatest[warp][h]);
  float weight = 0;
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    const float factor = exp2f(scratch.greatest[warp][h] - greatest);
    weight += factor * scratch.weights[warp][h];
    sum += factor * scratch.sums[warp][h][element];
  }
  const int head = unit.first_head + h;
  const bool valid = h < unit.num_heads;
  if (unit.num_chunks == 1) {
    publish_pair<T>(exchanges.attention, args.num_heads * kHeadDim, unit.row,
                    head * kHeadDim + element, sum / weight, valid, tag);
  } else if (valid) {
    Word* to = partial_of(args, exchanges.partials, unit.row, head, unit.chunk);
    publish(to + element, __float_as_uint(sum), tag);
    if (element == 0) {
      publish(to + kHeadDim, __float_as_uint(greatest), tag);
      publish(to + kHeadDim + 1, __float_as_uint(weight), tag);
    }
  }
}

template <typename T, int kHeadDim>
__device__ __forceinline__ void attend(const BlockState& block, const CudaDecoderStep& args,
                                       const CudaDecoderLayer& layer, const Exchanges& exchanges,
                                       uint32_t tag, const AttentionUnit& unit) {
  auto& scratch = *in_shared<UnitScratch<kHeadDim>>(kScratchAt);
  static_assert(sizeof(UnitScratch<kHeadDim>) <= kAttentionScratchBytes);
  TileLoads<kHeadDim> tile;
  // While q, k and v are on their way.
  tile.load_all(block, args, layer, unit, unit.chunk_begin);
  prepare_unit<T, kHeadDim>(block, args, layer, exchanges.qkv, tag, unit, scratch);
  block.synchronize();
  Softmax state[kHeadsPerUnit];
#pragma unroll 1
  for (int begin = unit.chunk_begin; begin < unit.end; begin += kTileTokens) {
    add_tile_tokens<T, kHeadDim>(block, args, layer, unit, begin, tile, scratch, state);
  }
#pragma unroll
  for (int h = 0; h < kHeadsPerUnit; ++h) store_warp_state<kHeadDim>(block, h, state[h], scratch);
  block.synchronize();
  publish_unit<T, kHeadDim>(block, args, exchanges, tag, unit, scratch);
  block.synchronize();
}

// This block's part of a layer's attention.
template <typename T, int kHeadDim>
__device__ __forceinline__ void attention(const BlockState& block, const CudaDecoderStep& args,
                                          const CudaDecoderLayer& layer, const Exchanges& exchanges,
                                          uint32_t tag) {
#pragma unroll 1
  for (int i = 0; i < WorkList::kMaxUnits; ++i) {
    const AttentionUnit unit = block.work().units[i];
    if (unit.row < 0) break;
    attend<T, kHeadDim>(block, args, layer, exchanges, tag, unit);
  }
#pragma unroll 1
  for (int i = 0; i < WorkList::kMaxCombinations; ++i) {
    const Combination piece = block.work().combinations[i];
    if (piece.row < 0) break;
    combine<T>(block, args, exchanges, tag, piece);
  }
}

}  // namespace quire::ops::cuda::step
