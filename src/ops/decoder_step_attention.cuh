#pragma once
// The attention of the decoder step's kernel: norm, rotation and cache write of the step's own
// heads, and attention over the paged cache.
//
// A unit of work is a sequence's chunk of context for two query heads that share a KV head. Chunks
// are cut at multiples of their size from position 0; the size is 64 tokens or, so that a sequence
// has at most kMaxChunks, the power of two that its context asks for. Where a sequence has one
// chunk, its unit publishes the result; else units publish partial results, and other pieces of
// work, of 32 elements of a head each, combine them. Units are dealt out from the first block on,
// combinations from the last.
#include "ops/decoder_step_product.cuh"

namespace quire::ops::cuda::step {

inline constexpr int kHeadsPerUnit = 2;
inline constexpr int kTileTokens = 64;
inline constexpr int kMaxChunks = 17;  // 16 chunks' length may touch 17
inline constexpr int kCombinedElements = 32;
inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kNoScore = -1e30f;  // finite, so that differences are numbers

// What of its context a sequence's query sees.
struct ContextSpan {
  int begin;
  int end;
  int chunk_tokens;
  int first_chunk;
  int num_chunks;
};

// A padding row (context 0) sees its own token alone, which never comes from the cache.
__device__ __forceinline__ ContextSpan span_of(int context_len, int64_t window) {
  ContextSpan span;
  span.end = max(context_len, 1);
  span.begin = window > 0 && window < span.end ? span.end - static_cast<int>(window) : 0;
  span.chunk_tokens = kTileTokens;
  while (span.chunk_tokens * (kMaxChunks - 1) < span.end - span.begin) span.chunk_tokens *= 2;
  span.first_chunk = span.begin / span.chunk_tokens;
  span.num_chunks = (span.end - 1) / span.chunk_tokens + 1 - span.first_chunk;
  return span;
}

__device__ __forceinline__ int pairs_per_kv_head(const CudaDecoderStep& args) {
  const int group = args.num_heads / args.num_kv_heads;
  return (group + kHeadsPerUnit - 1) / kHeadsPerUnit;
}

struct AttentionUnit {
  int row;
  int kv_head;
  int first_head;
  int num_heads;
  int chunk;  // of the span's, from 0
  ContextSpan span;

  __device__ int first_token() const { return (span.first_chunk + chunk) * span.chunk_tokens; }
  __device__ int last_token() const {  // exclusive
    return min(first_token() + span.chunk_tokens, span.end);
  }
  __device__ bool holds_own_token() const { return chunk == span.num_chunks - 1; }
};

// The index-th unit of all rows; false past the last.
__device__ __forceinline__ bool find_unit(const CudaDecoderStep& args, int64_t window, int index,
                                          AttentionUnit& unit) {
  const int pairs = args.num_kv_heads * pairs_per_kv_head(args);
  for (int row = 0; row < args.rows; ++row) {
    const ContextSpan span = span_of(args.context_lens[row], window);
    const int units = pairs * span.num_chunks;
    if (index < units) {
      const int group = args.num_heads / args.num_kv_heads;
      const int pair = index % pairs;
      const int first = pair % pairs_per_kv_head(args) * kHeadsPerUnit;
      unit.row = row;
      unit.kv_head = pair / pairs_per_kv_head(args);
      unit.first_head = unit.kv_head * group + first;
      unit.num_heads = min(kHeadsPerUnit, group - first);
      unit.chunk = index / pairs;
      unit.span = span;
      return true;
    }
    index -= units;
  }
  return false;
}

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

struct CombineScratch {
  float sums[kMaxChunks][kCombinedElements];
  float greatest[kMaxChunks];
  float weights[kMaxChunks];
};

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  return value;
}

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
  if (!unit.holds_own_token()) return;
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
  // Units of other query heads of this KV head have the same key and value.
  const int64_t slot = args.slot_mapping[unit.row];
  if (slot < 0 || unit.first_head % (args.num_heads / args.num_kv_heads) != 0) return;
  const int64_t at =
      ((slot / args.cache.block_size * args.num_kv_heads + unit.kv_head) * args.cache.block_size +
       slot % args.cache.block_size) *
      (kHeadDim / 8);
  static_cast<uint4*>(is_key ? layer.keys : layer.values)[at + block.lane] = packed;
}

// A warp's part of a tile: 4 tokens. A lane holds 8 elements of one token in each load.
template <int kHeadDim>
struct TileLoads {
  static constexpr int kLanesPerToken = kHeadDim / 8;
  static constexpr int kTokensPerLoad = 32 / kLanesPerToken;
  static constexpr int kLoads = kTileTokens / kWarps / kTokensPerLoad;

  uint4 key[kLoads];
  uint4 value[kLoads];

  static __device__ __forceinline__ int token(const BlockState& block, int tile_begin, int load) {
    return tile_begin + block.warp * (kTileTokens / kWarps) + load * kTokensPerLoad +
           block.lane / kLanesPerToken;
  }

  __device__ __forceinline__ void load(const BlockState& block, const CudaDecoderStep& args,
                                       const CudaDecoderLayer& layer, const AttentionUnit& unit,
                                       int tile_begin) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = token(block, tile_begin, i);
      key[i] = value[i] = make_uint4(0, 0, 0, 0);
      // The last token of the context is the step's own.
      if (at < unit.span.begin || at >= unit.last_token() || at == unit.span.end - 1) continue;
      const int32_t* table = args.block_tables + unit.row * args.table_width;
      const int block_size = args.cache.block_size;
      const int64_t place =
          ((static_cast<int64_t>(table[at / block_size]) * args.num_kv_heads + unit.kv_head) *
               block_size +
           at % block_size) *
              kLanesPerToken +
          block.lane % kLanesPerToken;
      key[i] = static_cast<const uint4*>(layer.keys)[place];
      value[i] = static_cast<const uint4*>(layer.values)[place];
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

template <typename T, int kHeadDim>
__device__ __forceinline__ void add_tile_tokens(const BlockState& block, const AttentionUnit& unit,
                                                int tile_begin, TileLoads<kHeadDim>& tile,
                                                const UnitScratch<kHeadDim>& scratch,
                                                Softmax (&state)[kHeadsPerUnit]) {
  using Loads = TileLoads<kHeadDim>;
  const int piece = block.lane % Loads::kLanesPerToken;
#pragma unroll
  for (int i = 0; i < Loads::kLoads; ++i) {
    const int token = Loads::token(block, tile_begin, i);
    const bool seen = token >= unit.span.begin && token < unit.last_token();
    if (token == unit.span.end - 1) {
      tile.key[i] = scratch.key[piece];
      tile.value[i] = scratch.value[piece];
    }
    float key[8];
    float value[8];
    unpack8<T>(tile.key[i], key);
    unpack8<T>(tile.value[i], value);
#pragma unroll
    for (int h = 0; h < kHeadsPerUnit; ++h) {
      float score = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) score += key[j] * scratch.query[h][8 * piece + j];
#pragma unroll
      for (int offset = Loads::kLanesPerToken / 2; offset > 0; offset /= 2) {
        score += __shfl_xor_sync(0xffffffffu, score, offset);
      }
      if (!seen) score = 2 * kNoScore;
      state[h].rescale(fmaxf(state[h].greatest, score));
      const float weight = exp2f(score - state[h].greatest);
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

// Partial results: [row][head][chunk][head_dim sums, greatest score, weight], a float32 a word.
__device__ __forceinline__ Word* partial_of(const CudaDecoderStep& args, Word* partials, int row,
                                            int head, int chunk) {
  return partials + ((static_cast<int64_t>(row) * args.num_heads + head) * kMaxChunks + chunk) *
                        (args.head_dim + 2);
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
  if (unit.span.num_chunks == 1) {
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
  auto& scratch = *reinterpret_cast<UnitScratch<kHeadDim>*>(block.sums);
  static_assert(sizeof(UnitScratch<kHeadDim>) <= kSumsBytes);
  TileLoads<kHeadDim> next;
  next.load(block, args, layer, unit, unit.first_token());  // while q, k and v are on their way
  prepare_unit<T, kHeadDim>(block, args, layer, exchanges.qkv, tag, unit, scratch);
  block.synchronize();
  Softmax state[kHeadsPerUnit];
  for (int begin = unit.first_token(); begin < unit.last_token(); begin += kTileTokens) {
    TileLoads<kHeadDim> tile = next;
    next.load(block, args, layer, unit, begin + kTileTokens);
    add_tile_tokens<T, kHeadDim>(block, unit, begin, tile, scratch, state);
  }
#pragma unroll
  for (int h = 0; h < kHeadsPerUnit; ++h) store_warp_state<kHeadDim>(block, h, state[h], scratch);
  block.synchronize();
  publish_unit<T, kHeadDim>(block, args, exchanges, tag, unit, scratch);
  block.synchronize();
}

// Elements [first, first + kCombinedElements) of a head, of all chunks' partial results.
template <typename T>
__device__ __forceinline__ void combine(const BlockState& block, const CudaDecoderStep& args,
                                        const Exchanges& exchanges, uint32_t tag, int row, int head,
                                        int first, int num_chunks) {
  auto& scratch = *reinterpret_cast<CombineScratch*>(block.sums);
  for (int chunk = block.warp; chunk < num_chunks; chunk += kWarps) {
    const Word* from = partial_of(args, exchanges.partials, row, head, chunk);
    Word sum;
    Word greatest;
    Word weight;
    do {
      sum = load_word(from + first + block.lane);
      load_two_words(from + args.head_dim, greatest, weight);
    } while (__any_sync(0xffffffffu,
                        tag_of(sum) != tag || tag_of(greatest) != tag || tag_of(weight) != tag));
    scratch.sums[chunk][block.lane] = __uint_as_float(payload_of(sum));
    scratch.greatest[chunk] = __uint_as_float(payload_of(greatest));
    scratch.weights[chunk] = __uint_as_float(payload_of(weight));
  }
  block.synchronize();
  if (block.warp == 0) {
    float greatest = kNoScore;
    for (int i = 0; i < num_chunks; ++i) greatest = fmaxf(greatest, scratch.greatest[i]);
    float weight = 0;
    float sum = 0;
    for (int i = 0; i < num_chunks; ++i) {
      const float factor = exp2f(scratch.greatest[i] - greatest);
      weight += factor * scratch.weights[i];
      sum += factor * scratch.sums[i][block.lane];
    }
    publish_pair<T>(exchanges.attention, args.num_heads * args.head_dim, row,
                    head * args.head_dim + first + block.lane, sum / weight, true, tag);
  }
  block.synchronize();
}

// This block's part of a layer's attention.
template <typename T, int kHeadDim>
__device__ __forceinline__ void attention(const BlockState& block, const CudaDecoderStep& args,
                                          const CudaDecoderLayer& layer, const Exchanges& exchanges,
                                          uint32_t tag) {
  AttentionUnit unit;
  for (int index = static_cast<int>(blockIdx.x); find_unit(args, layer.sliding_window, index, unit);
       index += static_cast<int>(gridDim.x)) {
    attend<T, kHeadDim>(block, args, layer, exchanges, tag, unit);
  }
  const int pieces = kHeadDim / kCombinedElements;
  int before = 0;  // pieces of rows before
  for (int row = 0; row < args.rows; ++row) {
    const ContextSpan span = span_of(args.context_lens[row], layer.sliding_window);
    if (span.num_chunks == 1) continue;
    const int grid = static_cast<int>(gridDim.x);
    const int mine = (grid - 1 - static_cast<int>(blockIdx.x) - before % grid + grid) % grid;
    for (int piece = mine; piece < args.num_heads * pieces; piece += grid) {
      combine<T>(block, args, exchanges, tag, row, piece / pieces,
                 piece % pieces * kCombinedElements, span.num_chunks);
    }
    before += args.num_heads * pieces;
  }
}

}  // namespace quire::ops::cuda::step
