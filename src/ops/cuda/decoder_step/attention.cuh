#pragma once
// The attention of the decoder step's kernel: norm, rotation and cache write of the step's own
// heads, and attention over the paged cache, whose keys and values come through the ring.
//
// A warp takes 8 tokens of each tile of 64, for all query heads that share the KV head. Scores are
// m16n8k16 products with the heads as 8 of the first operand's 16 rows, and tokens as
// columns (the heads of several rows, where a unit has several); the second product, m16n8k8, has
// the values, transposed, as its first operand, and takes the weights as the first left them. In
// both, lane (g = lane / 4, t = lane % 4) holds 16-byte pieces of the cache.
#include "core/warp_sum.cuh"
#include "ops/cuda/decoder_step/partials.cuh"
#include "ops/cuda/decoder_step/product.cuh"
#include "ops/cuda/decoder_step/work.cuh"

namespace quire::ops::cuda::step {

static_assert(kTileTokens == kWarps * kRowTokens && kTileTokens == kGroupRows * kRowTokens);

// Heads whose sums are joined at a time: those that one column pair of a warp's sums has.
inline constexpr int kHeadsAtOnce = 2;

// Scratch of a unit, in the block's partial sums. There is room for as many of the step's own
// tokens as the longest of its sequences has rows.
template <int kHeadDim>
struct UnitScratch {
  static constexpr int kPieces = kHeadDim / 8;  // of 16 bytes

  // As the cache holds them.
  struct OwnToken {
    uint4 key[kPieces];
    uint4 value[kPieces];
  };

  uint4 queries[kMaxGroup][kPieces];
  uint4 zeros[kPieces];                        // in the place of tokens that the unit does not see
  float sums[kWarps][kHeadsAtOnce][kHeadDim];  // and before: heads that a warp prepares
  float greatest[kWarps][kMaxGroup];
  float weights[kWarps][kMaxGroup];
  OwnToken own[kMaxRows];
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

// Queries, and keys and values of the step's own tokens, which also go to the cache: a warp each.
template <typename T, int kHeadDim>
__device__ __forceinline__ void prepare_unit(const BlockState& block, const CudaDecoderStep& args,
                                             const CudaDecoderLayer& layer, const Word* qkv,
                                             uint32_t tag, const AttentionUnit& unit, int group,
                                             UnitScratch<kHeadDim>& scratch) {
  constexpr int kPieces = UnitScratch<kHeadDim>::kPieces;
  const int width = (args.num_heads + 2 * args.num_kv_heads) * kHeadDim;
  float* rotated = scratch.sums[block.warp][0];
  if (block.thread < kPieces) scratch.zeros[block.thread] = make_uint4(0, 0, 0, 0);
  const int num_queries = group * unit.num_rows;
  const int count = num_queries + 2 * unit.num_own_tokens();
#pragma unroll 1
  for (int i = block.warp; i < count; i += kWarps) {
    const bool is_query = i < num_queries;
    const int own = (i - num_queries) / 2;
    const bool is_key = !is_query && (i - num_queries) % 2 == 0;
    const int row = is_query ? unit.row + i / group : unit.row_of(unit.cached_end + own);
    const int head = is_query ? unit.kv_head * group + i % group
                              : args.num_heads + (is_key ? 0 : args.num_kv_heads) + unit.kv_head;
    const float* norm = is_query ? layer.q_norm : is_key ? layer.k_norm : nullptr;
    const RowPlace place = block.work().rows[row];
    prepare_head<T, kHeadDim>(args, qkv + (static_cast<int64_t>(row) * width + head * kHeadDim) / 2,
                              tag, norm, place.position, is_query || is_key ? args.rotary_dim : 0,
                              block.lane, rotated);
    if (block.lane < kPieces) {
      const float* from = rotated + 8 * block.lane;
      const uint4 packed = make_uint4(pair_of<T>(from[0], from[1]), pair_of<T>(from[2], from[3]),
                                      pair_of<T>(from[4], from[5]), pair_of<T>(from[6], from[7]));
      uint4* const to = is_query ? scratch.queries[i]
                        : is_key ? scratch.own[own].key
                                 : scratch.own[own].value;
      to[block.lane] = packed;
      // Of several units that see a token, those of its own row's group store it.
      if (!is_query && place.stored >= 0 && row >= unit.row) {
        const int64_t of_head = int64_t{unit.kv_head} * args.cache.block_size * kPieces;
        static_cast<uint4*>(is_key ? layer.keys
                                   : layer.values)[place.stored + of_head + block.lane] = packed;
      }
    }
    __syncwarp();
  }
}

// A token of a warp's eight in a tile. The eight are half of two rows of the slot, in such an order
// that lanes which read together read from both: rows lie in different banks, a row's tokens do
// not.
struct TileToken {
  int index;        // in the tile
  uint32_t offset;  // in the slot

  __device__ TileToken(int warp, int n, int token_bytes) {
    const int row = warp / 2 * 2 + ((n ^ n / 2) & 1);
    const int of_row = kRowTokens / 2 * (warp % 2) + n / 2;
    index = kRowTokens * row + of_row;
    offset = static_cast<uint32_t>(row * kSlotRowBytes + of_row * token_bytes);
  }
};

// A warp's share of a unit: its tokens' running softmax. Head g's greatest score and its weights of
// tokens 2 t and 2 t + 1 are with lane (g, t); the sums are for heads 2 t and 2 t + 1, two elements
// of each piece.
template <typename T, int kHeadDim>
class WarpAttention {
 public:
  using Scratch = UnitScratch<kHeadDim>;

  __device__ WarpAttention(const BlockState& block, const AttentionUnit& unit, int group,
                           int64_t window, float score_scale, Scratch& scratch)
      : unit_(unit),
        score_scale_(score_scale),
        g_(block.lane / 4),
        t_(block.lane % 4),
        key_token_(block.warp, g_, 2 * kHeadDim),
        first_token_(block.warp, 2 * t_, 2 * kHeadDim),
        second_token_(block.warp, 2 * t_ + 1, 2 * kHeadDim),
        own_key_(shared_address(scratch.own[0].key)),
        own_value_(shared_address(scratch.own[0].value)),
        zeros_(shared_address(scratch.zeros)) {
    const int row = min(g_ / group, unit.num_rows - 1);
    end_ = min(unit.end, unit.end_of(row));
    begin_ = max(unit.begin, begin_of(unit.end_of(row), window));
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      query_[run] =
          g_ < group * unit.num_rows ? scratch.queries[g_][4 * run + t_] : make_uint4(0, 0, 0, 0);
    }
  }

  __device__ __forceinline__ void add_tile(BlockState& block, int tile) {
    const bool cached = tile < unit_.cached_end;
    const uint32_t keys = cached ? block.wait_slot() : 0;
    const float2 scores = multiply_keys(place_of(keys, key_token_, tile, own_key_));
    if (cached) block.release_slot();
    const uint32_t weights = add_scores(scores, tile);
    const uint32_t values = cached ? block.wait_slot() : 0;
    multiply_values(place_of(values, first_token_, tile, own_value_),
                    place_of(values, second_token_, tile, own_value_), weights);
    if (cached) block.release_slot();
  }

  __device__ __forceinline__ void store_weights(const BlockState& block, Scratch& scratch) {
    weight_ += __shfl_xor_sync(0xffffffffu, weight_, 1);
    weight_ += __shfl_xor_sync(0xffffffffu, weight_, 2);
    if (t_ == 0) {
      scratch.greatest[block.warp][g_] = greatest_;
      scratch.weights[block.warp][g_] = weight_;
    }
  }
  // Of heads `first` and the next.
  __device__ __forceinline__ void store_sums(const BlockState& block, int first,
                                             Scratch& scratch) const {
    if (2 * t_ != first) return;
#pragma unroll
    for (int j = 0; j < kPiecesPerLane; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int element = 8 * (kPiecesPerLane * g_ + j) + 2 * i;
        const float(&sum)[4] = sums_[j][i];
        *reinterpret_cast<float2*>(&scratch.sums[block.warp][0][element]) =
            make_float2(sum[0], sum[2]);
        *reinterpret_cast<float2*>(&scratch.sums[block.warp][1][element]) =
            make_float2(sum[1], sum[3]);
      }
    }
  }

 private:
  static constexpr int kRuns = kHeadDim / 32;
  static constexpr int kPiecesPerLane = kHeadDim / 64;  // of values

  __device__ __forceinline__ uint32_t place_of(uint32_t slot, const TileToken& token, int tile,
                                               uint32_t own) const {
    const int at = tile + token.index;
    if (at >= unit_.begin && at < unit_.cached_end) return slot + token.offset;
    if (at < unit_.cached_end || at >= unit_.end) return zeros_;
    return own + static_cast<uint32_t>(at - unit_.cached_end) * sizeof(typename Scratch::OwnToken);
  }
  __device__ __forceinline__ bool sees(const TileToken& token, int tile) const {
    const int at = tile + token.index;
    return at >= begin_ && at < end_;
  }

  // Of head g with tokens 2 t and 2 t + 1.
  __device__ __forceinline__ float2 multiply_keys(uint32_t key) const {
    float sums[2][4] = {};
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const uint4 piece = load_chunk(key + 64 * run + 16 * t_);
      const uint4& query = query_[run];
      multiply_add<T>(sums[0], {query.x, 0, query.y, 0}, piece.x, piece.y);
      multiply_add<T>(sums[1], {query.z, 0, query.w, 0}, piece.z, piece.w);
    }
    return make_float2(sums[0][0] + sums[1][0], sums[0][1] + sums[1][1]);
  }

  // The tokens' weights, as the second product takes them.
  __device__ __forceinline__ uint32_t add_scores(const float2& scores, int tile) {
    const float first = sees(first_token_, tile) ? scores.x * score_scale_ : 2 * kNoScore;
    const float second = sees(second_token_, tile) ? scores.y * score_scale_ : 2 * kNoScore;
    float greatest = fmaxf(first, second);
    greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 1));
    greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 2));
    greatest = fmaxf(greatest, greatest_);
    const float factor = exp2f(greatest_ - greatest);
    greatest_ = greatest;
    const float2 weights = make_float2(exp2f(first - greatest), exp2f(second - greatest));
    weight_ = weight_ * factor + weights.x + weights.y;
    const float factors[2] = {__shfl_sync(0xffffffffu, factor, 8 * t_),
                              __shfl_sync(0xffffffffu, factor, 8 * t_ + 4)};
#pragma unroll
    for (auto& of_piece : sums_) {
#pragma unroll
      for (auto& sum : of_piece) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] *= factors[i % 2];
      }
    }
    return pair_of<T>(weights.x, weights.y);
  }

  // The values of two tokens: pairs of one element are the transposed operand's.
  __device__ __forceinline__ void multiply_values(uint32_t first, uint32_t second,
                                                  uint32_t weights) {
#pragma unroll
    for (int j = 0; j < kPiecesPerLane; ++j) {
      const uint32_t at = 16 * (kPiecesPerLane * g_ + j);
      const uint4 a = load_chunk(first + at);
      const uint4 b = load_chunk(second + at);
      const uint32_t as[4] = {a.x, a.y, a.z, a.w};
      const uint32_t bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        multiply_add_short<T>(sums_[j][i], __byte_perm(as[i], bs[i], 0x5410),
                              __byte_perm(as[i], bs[i], 0x7632), weights);
      }
    }
  }

  AttentionUnit unit_;
  int begin_;  // tokens [begin_, end_) are seen by head g_
  int end_;
  float score_scale_;
  int g_;
  int t_;
  TileToken key_token_;     // g of the warp's
  TileToken first_token_;   // 2 t
  TileToken second_token_;  // 2 t + 1
  uint32_t own_key_;
  uint32_t own_value_;
  uint32_t zeros_;
  uint4 query_[kRuns];
  float greatest_ = kNoScore;
  float weight_ = 0;
  float sums_[kPiecesPerLane][4][4] = {};
};

// Joins the warps' sums of heads `first` and the next.
template <typename T, int kHeadDim>
__device__ __forceinline__ void publish_heads(const BlockState& block, const CudaDecoderStep& args,
                                              const Exchanges& exchanges, uint32_t tag,
                                              const AttentionUnit& unit, int group, int first,
                                              const UnitScratch<kHeadDim>& scratch) {
  if (block.thread >= kHeadsAtOnce * kHeadDim) return;
  const int of_two = block.thread / kHeadDim;
  const int element = block.thread % kHeadDim;
  const int h = first + of_two;
  float greatest = kNoScore;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) greatest = fmaxf(greatest, scratch.greatest[warp][h]);
  float weight = 0;
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    const float factor = exp2f(scratch.greatest[warp][h] - greatest);
    weight += factor * scratch.weights[warp][h];
    sum += factor * scratch.sums[warp][of_two][element];
  }
  const int row = unit.row + h / group;
  const int head = unit.kv_head * group + h % group;
  const bool valid = h < group * unit.num_rows;
  if (unit.num_chunks == 1) {
    publish_pair<T>(exchanges.attention, args.num_heads * kHeadDim, row, head * kHeadDim + element,
                    sum / weight, valid, tag);
  } else if (valid) {
    Word* to = partial_of(args, exchanges.partials, row, head, unit.chunk);
    publish(to + element, __float_as_uint(sum), tag);
    if (element == 0) {
      publish(to + kHeadDim, __float_as_uint(greatest), tag);
      publish(to + kHeadDim + 1, __float_as_uint(weight), tag);
    }
  }
}

template <typename T, int kHeadDim>
__device__ __forceinline__ void attend(BlockState& block, const CudaDecoderStep& args,
                                       const CudaDecoderLayer& layer, const Exchanges& exchanges,
                                       uint32_t tag, const AttentionUnit& unit) {
  auto& scratch = *in_shared<UnitScratch<kHeadDim>>(kScratchAt);
  static_assert(sizeof(UnitScratch<kHeadDim>) <=
                kAttentionScratchBytes + (kMaxRows - 1) * kOwnTokenBytes);
  const int group = args.num_heads / args.num_kv_heads;
  prepare_unit<T, kHeadDim>(block, args, layer, exchanges.qkv, tag, unit, group, scratch);
  block.synchronize();
  WarpAttention<T, kHeadDim> of_warp(block, unit, group, layer.sliding_window, args.scale * kLog2E,
                                     scratch);
#pragma unroll 1
  for (int tile = first_tile(unit); tile < unit.end; tile += kTileTokens) {
    of_warp.add_tile(block, tile);
  }
  of_warp.store_weights(block, scratch);
#pragma unroll 1
  for (int first = 0; first < group * unit.num_rows; first += kHeadsAtOnce) {
    of_warp.store_sums(block, first, scratch);
    block.synchronize();
    publish_heads<T, kHeadDim>(block, args, exchanges, tag, unit, group, first, scratch);
    block.synchronize();
  }
}

// This block's part of a layer's attention.
template <typename T, int kHeadDim>
__device__ __forceinline__ void attention(BlockState& block, const CudaDecoderStep& args,
                                          const CudaDecoderLayer& layer, const Exchanges& exchanges,
                                          uint32_t tag) {
#pragma unroll 1
  for (int i = 0; i < UnitList::kMaxUnits; ++i) {
    const AttentionUnit unit = block.work().units.at[i];
    if (unit.row < 0) break;
    attend<T, kHeadDim>(block, args, layer, exchanges, tag, unit);
  }
#pragma unroll 1
  for (int i = block.warp; i < WorkList::kMaxCombinations; i += kWarps) {
    const Combination piece = block.work().combinations[i];
    if (piece.row < 0) break;
    combine<T>(block, args, exchanges, tag, piece);
  }
}

}  // namespace quire::ops::cuda::step
