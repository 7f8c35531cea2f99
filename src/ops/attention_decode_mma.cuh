#pragma once
// Decode attention at the speed of memory, for 16-bit activations.
//
// A block has warps of three kinds that never wait for each other more than they must:
//   one that finds out what the next units are and brings their queries,
//   kDecodeWarps that compute; each has its own ring of tiles, 16 tokens' keys and values, in
//     shared memory, which it fills as far ahead as there is room, over the ends of units,
//   kFinishWarps that add up what these leave of a unit, and agree with other blocks on who
//     combines the chunks of a sequence.
//
// Both products of a tile have the cache as the 16-row operand and the query heads as the 8
// columns. The order in which the head's elements are summed, and that in which elements are rows
// of the output, is free, so that a lane's operands are what lies side by side in memory:
//   scores[token, head] = K q^T: lane (g, t) = (lane / 4, lane % 4) reads of tokens g and g + 8 the
//     16 bytes t, t + 4, ...; so it does of query g
//   out^T[element, head] = V^T p^T: lane (g, t) reads of tokens 2t, 2t + 1, 2t + 8 and 2t + 9 the
//     pieces g, g + 8, ...; two tokens' elements are then paired
// The probabilities' registers become the second product's operand by a transposition in registers.
// An fp8 cache is converted to float16 in registers.
//
// The kernel before this one in the stream writes the queries and the newest token of each
// sequence, and nothing else that is read here (qk_norm_rope_cache, which lets this kernel start
// only when it has itself waited for all before it). So the first units are placed, and the older
// tokens' tiles are on their way, before that kernel has ended.
#include <type_traits>

#include "core/launch.cuh"
#include "ops/attention_decode.cuh"
#include "ops/attention_decode_copy.cuh"
#include "ops/mma.cuh"

namespace quire::ops::cuda {

inline constexpr int kFinishWarps = 4;
inline constexpr int kMmaThreads = 32 * (kDecodeWarps + kFinishWarps + 1);
inline constexpr int kTileTokens = 16;
// A warp's tiles of a chunk: its number, and its number plus kDecodeWarps.
inline constexpr int kWarpTiles = 2;
static_assert(kDecodeChunk == kTileTokens * kWarpTiles * kDecodeWarps);

template <typename T_, typename Kv_, int kHeadDim_, int kHeadTiles_>
struct DecodeShape {
  using T = T_;
  using Kv = Kv_;
  static constexpr bool kIsFp8 = std::is_same_v<Kv, __nv_fp8_e4m3>;
  using Operand = std::conditional_t<kIsFp8, __half, T>;

  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kHeadTiles = kHeadTiles_;
  static constexpr int kHeads = 8 * kHeadTiles;
  static constexpr int kRowBytes = kHeadDim * static_cast<int>(sizeof(Kv));

  static constexpr int kTileBytes = kTileTokens * kRowBytes;  // keys, and as much for values

  // Keys: kKeyLoads pieces of 16 bytes for each of two tokens.
  static constexpr int kKeyPiece = 16 / static_cast<int>(sizeof(Kv));
  static constexpr int kKeyLoads = (kHeadDim + 4 * kKeyPiece - 1) / (4 * kKeyPiece);
  static constexpr int kPaddedKeyDim = kKeyLoads * 4 * kKeyPiece;

  // Values: kValueLoads pieces for each of four tokens.
  static constexpr int kValuePieceBytes = kRowBytes < 96 ? 8 : 16;
  static constexpr int kValuePiece = kValuePieceBytes / static_cast<int>(sizeof(Kv));
  static constexpr int kValueLoads = (kHeadDim + 8 * kValuePiece - 1) / (8 * kValuePiece);
  static constexpr int kValueWords = kValueLoads * kValuePieceBytes / 4;
  static constexpr int kLaneElements = kValueLoads * kValuePiece;
  static constexpr int kOutTiles = kLaneElements / 2;

  // Rows of queries in shared memory, 16-bit elements: lanes of two rows then hit other banks.
  static constexpr int kQueryStride = kPaddedKeyDim + 32;
  static constexpr int kQueryLoads = kHeads * kPaddedKeyDim / kPackSize / 32;
  static_assert(kHeads * kPaddedKeyDim % (32 * kPackSize) == 0);
};

// A unit and where its tokens are: row[i] is that of tile i's first token in the cache, in rows of
// head_dim elements. A negative context length is the end of the work.
struct PlacedUnit {
  DecodeUnit unit;
  int64_t row[kWarpTiles * kDecodeWarps];
};
inline constexpr int kPlacedUnits = 4;
inline constexpr int kMaxDepth = 4;  // tiles in a warp's ring

template <typename Shape>
struct DecodeShared {
  SharedBarrier tile_full[kDecodeWarps][kMaxDepth];
  SharedBarrier unit_ready[kPlacedUnits];
  SharedBarrier query_ready[kPlacedUnits];
  SharedBarrier unit_free[kPlacedUnits];
  SharedBarrier outputs_full[kFinishWarps];
  SharedBarrier outputs_free;
  PlacedUnit units[kPlacedUnits];
  float2 maxima_sums[kDecodeWarps][Shape::kHeads];
  alignas(16) typename Shape::Operand queries[kPlacedUnits][Shape::kHeads * Shape::kQueryStride];
};

// What follows in shared memory: [kDecodeWarps][heads][kHeadDim] outputs, then the tiles:
// [kDecodeWarps][depth][keys, values].
template <typename Shape>
constexpr size_t decode_outputs_bytes(int heads) {
  return sizeof(float) * kDecodeWarps * Shape::kHeadDim * static_cast<size_t>(heads);
}
template <typename Shape>
constexpr size_t decode_shared_bytes(int heads, int depth) {
  return sizeof(DecodeShared<Shape>) + decode_outputs_bytes<Shape>(heads) +
         size_t{2} * Shape::kTileBytes * kDecodeWarps * static_cast<size_t>(depth);
}

// Part of a unit: 16 tokens of the cache, seen by one warp.
struct Tile {
  int64_t row;
  int first_token;
  int end;  // of the context

  __device__ bool is_visible(int first_visible) const {
    return first_token < end && first_token + kTileTokens > first_visible;
  }
  __device__ bool has_newest_token() const { return end <= first_token + kTileTokens; }
  // Tokens from the end of the context on have no data: the last token's stands for theirs.
  __device__ int present(int token) const { return min(token, end - 1 - first_token); }
};

__device__ inline Tile tile_of(const PlacedUnit& placed, int number) {
  return {placed.row[number], placed.unit.chunk * kDecodeChunk + number * kTileTokens,
          placed.unit.context_len};
}

__device__ __forceinline__ uint32_t halves_of_fp8(uint32_t pair) {
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
  return halves.x | static_cast<uint32_t>(halves.y) << 16;
}

__device__ __forceinline__ uint32_t transposed(uint32_t matrix_row) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(matrix_row));
  return result;
}

// A warp's keys of a tile.
template <typename Shape>
struct KeyTile {
  alignas(16) uint32_t words[2][Shape::kKeyLoads * 4];

  __device__ void load(const char* keys, const Tile& tile, int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const char* row = keys + tile.present(lane / 4 + 8 * i) * Shape::kRowBytes;
#pragma unroll
      for (int j = 0; j < Shape::kKeyLoads; ++j) {
        // Past the head's end the query is zero.
        const int piece = j * 4 + lane % 4;
        const int last = Shape::kHeadDim / Shape::kKeyPiece - 1;
        *reinterpret_cast<uint4*>(&words[i][4 * j]) =
            *reinterpret_cast<const uint4*>(row + 16 * min(piece, last));
      }
    }
  }

  // scores[n] = the tile's keys times the queries of heads [8 n, 8 n + 8).
  __device__ void multiply(const typename Shape::Operand* queries, int lane,
                           float (&scores)[Shape::kHeadTiles][4]) const {
    using Operand = typename Shape::Operand;
    constexpr int kQueryWords = 4 * (Shape::kIsFp8 ? 2 : 1);  // beside a piece of keys
#pragma unroll
    for (int n = 0; n < Shape::kHeadTiles; ++n) {
      float sums[2][4] = {};  // two, to wait less for each other
      const Operand* query = queries + (n * 8 + lane / 4) * Shape::kQueryStride;
#pragma unroll
      for (int j = 0; j < Shape::kKeyLoads; ++j) {
        uint32_t q[kQueryWords];
#pragma unroll
        for (int i = 0; i < kQueryWords; i += 4) {
          const uint4 four = *reinterpret_cast<const uint4*>(
              query + (j * 4 + lane % 4) * Shape::kKeyPiece + 2 * i);
          q[i] = four.x;
          q[i + 1] = four.y;
          q[i + 2] = four.z;
          q[i + 3] = four.w;
        }
#pragma unroll
        for (int i = 0; i < kQueryWords / 2; ++i) {
          uint32_t a[4];
          if constexpr (Shape::kIsFp8) {
            const uint32_t low = words[0][4 * j + i];
            const uint32_t high = words[1][4 * j + i];
            a[0] = halves_of_fp8(low & 0xffffu);
            a[1] = halves_of_fp8(high & 0xffffu);
            a[2] = halves_of_fp8(low >> 16);
            a[3] = halves_of_fp8(high >> 16);
          } else {
            a[0] = words[0][4 * j + 2 * i];
            a[1] = words[1][4 * j + 2 * i];
            a[2] = words[0][4 * j + 2 * i + 1];
            a[3] = words[1][4 * j + 2 * i + 1];
          }
          multiply_add<Operand>(sums[i % 2], a, q[2 * i], q[2 * i + 1]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = sums[0][i] + sums[1][i];
    }
  }
};

// A warp's values of a tile.
template <typename Shape>
struct ValueTile {
  alignas(16) uint32_t words[4][Shape::kValueWords];

  __device__ void load(const char* values, const Tile& tile, int lane) {
    using Piece = std::conditional_t<Shape::kValuePieceBytes == 16, uint4, uint2>;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = lane % 4 * 2 + i % 2 + i / 2 * 8;
      const char* row = values + tile.present(token) * Shape::kRowBytes;
#pragma unroll
      for (int j = 0; j < Shape::kValueLoads; ++j) {
        // Past the head's end the outputs are dropped.
        const int piece = j * 8 + lane / 4;
        const int last = Shape::kHeadDim / Shape::kValuePiece - 1;
        *reinterpret_cast<Piece*>(&words[i][j * Shape::kValuePieceBytes / 4]) =
            *reinterpret_cast<const Piece*>(row + Shape::kValuePieceBytes * min(piece, last));
      }
    }
  }

  // Element e of two neighbouring tokens: tokens 2 i and 2 i + 1 of the lane's four.
  __device__ uint32_t pair(int i, int e) const {
    if constexpr (Shape::kIsFp8) {
      const uint32_t two =
          __byte_perm(words[2 * i][e / 4], words[2 * i + 1][e / 4], e % 4 < 2 ? 0x5140 : 0x7362);
      return halves_of_fp8(e % 2 == 0 ? two & 0xffffu : two >> 16);
    } else {
      return __byte_perm(words[2 * i][e / 2], words[2 * i + 1][e / 2],
                         e % 2 == 0 ? 0x5410 : 0x7632);
    }
  }
};

// What a warp has of a unit so far. Column 2 t + i of head tile n is index [n][i].
template <typename Shape>
struct WarpOutput {
  float maximum[Shape::kHeadTiles][2];
  float sum[Shape::kHeadTiles][2];  // over this lane's tokens
  float out[Shape::kHeadTiles][Shape::kOutTiles][4];

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < Shape::kHeadTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        maximum[n][i] = -INFINITY;
        sum[n][i] = 0.0f;
      }
#pragma unroll
      for (int j = 0; j < Shape::kOutTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[n][j][i] = 0.0f;
      }
    }
  }

  // Turns scores into probabilities to the base of the new maximum, to which what is there already
  // is brought too. At least one score is finite.
  __device__ void soften(float (&scores)[Shape::kHeadTiles][4]) {
#pragma unroll
    for (int n = 0; n < Shape::kHeadTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float highest = fmaxf(maximum[n][i], fmaxf(scores[n][i], scores[n][i + 2]));
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2) {
          highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, lanes));
        }
        const float factor = fast_exp2(maximum[n][i] - highest);
        maximum[n][i] = highest;
        scores[n][i] = fast_exp2(scores[n][i] - highest);
        scores[n][i + 2] = fast_exp2(scores[n][i + 2] - highest);
        sum[n][i] = sum[n][i] * factor + scores[n][i] + scores[n][i + 2];
#pragma unroll
        for (int j = 0; j < Shape::kOutTiles; ++j) {
          out[n][j][i] *= factor;
          out[n][j][i + 2] *= factor;
        }
      }
    }
  }

  // out += probabilities times values.
  __device__ void add(const ValueTile<Shape>& values,
                      const float (&probabilities)[Shape::kHeadTiles][4]) {
    using Operand = typename Shape::Operand;
    uint32_t b[Shape::kHeadTiles][2];
#pragma unroll
    for (int n = 0; n < Shape::kHeadTiles; ++n) {
      b[n][0] = transposed(pair_of<Operand>(probabilities[n][0], probabilities[n][1]));
      b[n][1] = transposed(pair_of<Operand>(probabilities[n][2], probabilities[n][3]));
    }
#pragma unroll
    for (int j = 0; j < Shape::kOutTiles; ++j) {
      const uint32_t a[4] = {values.pair(0, j), values.pair(0, j + Shape::kOutTiles),
                             values.pair(1, j), values.pair(1, j + Shape::kOutTiles)};
#pragma unroll
      for (int n = 0; n < Shape::kHeadTiles; ++n) {
        multiply_add<Operand>(out[n][j], a, b[n][0], b[n][1]);
      }
    }
  }

  // Leaves the first `heads` heads to the block: outputs[heads][kHeadDim].
  __device__ void leave(int lane, int heads, float2* maxima_sums, float* outputs) const {
#pragma unroll
    for (int n = 0; n < Shape::kHeadTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float total = sum[n][i];
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2) {
          total += __shfl_xor_sync(0xffffffffu, total, lanes);
        }
        const int head = n * 8 + lane % 4 * 2 + i;
        if (head >= heads) continue;
        if (lane / 4 == 0) maxima_sums[head] = make_float2(maximum[n][i], total);
#pragma unroll
        for (int e = 0; e < Shape::kLaneElements; e += 4) {
          const int element = e / Shape::kValuePiece * 8 * Shape::kValuePiece +
                              lane / 4 * Shape::kValuePiece + e % Shape::kValuePiece;
          if (element >= Shape::kHeadDim) continue;
          const int row = e / Shape::kOutTiles * 2 + i;
          const int j = e % Shape::kOutTiles;
          *reinterpret_cast<float4*>(outputs + head * Shape::kHeadDim + element) = make_float4(
              out[n][j][row], out[n][j + 1][row], out[n][j + 2][row], out[n][j + 3][row]);
        }
      }
    }
  }
};

// A warp's part of a unit's queries on the way to shared memory; zeros where there are none.
template <typename Shape>
struct QueryLoad {
  using T = typename Shape::T;
  Pack<T> packs[Shape::kQueryLoads];

  __device__ void load(const DecodeParams& p, const DecodeUnit& unit, int lane) {
    const int heads = unit.num_heads;
    const T* queries = static_cast<const T*>(p.q) + unit.seq * p.q_stride +
                       int64_t{unit.first_head} * Shape::kHeadDim;
#pragma unroll
    for (int i = 0; i < Shape::kQueryLoads; ++i) {
      const int piece = lane + i * 32;
      const int head = piece / (Shape::kPaddedKeyDim / kPackSize);
      const int element = piece % (Shape::kPaddedKeyDim / kPackSize) * kPackSize;
      packs[i] = {};
      if (head < heads && element < Shape::kHeadDim) {
        packs[i] = load_pack(queries + head * Shape::kHeadDim + element);
      }
    }
  }

  __device__ void store(typename Shape::Operand* queries, int lane) const {
#pragma unroll
    for (int i = 0; i < Shape::kQueryLoads; ++i) {
      const int piece = lane + i * 32;
      const int head = piece / (Shape::kPaddedKeyDim / kPackSize);
      const int element = piece % (Shape::kPaddedKeyDim / kPackSize) * kPackSize;
      Pack<typename Shape::Operand> operands;
#pragma unroll
      for (int e = 0; e < kPackSize; ++e) operands.at[e] = to_operand(packs[i].at[e]);
      store_pack(queries + head * Shape::kQueryStride + element, operands);
    }
  }

 private:
  __device__ static typename Shape::Operand to_operand(T value) {
    if constexpr (std::is_same_v<T, typename Shape::Operand>) {
      return value;
    } else {
      constexpr float kMaxHalf = 65504.0f;
      return __float2half_rn(fminf(fmaxf(to_float(value), -kMaxHalf), kMaxHalf));
    }
  }
};

// Scores of tokens that the query does not see become minus infinity.
template <typename Shape>
__device__ __forceinline__ void scale_and_mask(float (&scores)[Shape::kHeadTiles][4],
                                               const Tile& tile, int first_visible, float scale,
                                               int lane) {
#pragma unroll
  for (int row = 0; row < 4; row += 2) {
    const int token = tile.first_token + lane / 4 + 4 * row;
    const bool is_visible = token >= first_visible && token < tile.end;
#pragma unroll
    for (int n = 0; n < Shape::kHeadTiles; ++n) {
#pragma unroll
      for (int i = row; i < row + 2; ++i) {
        scores[n][i] = is_visible ? scores[n][i] * scale : -INFINITY;
      }
    }
  }
}

// The part of the warp that finds out what the next units are.
template <typename Shape>
__device__ void place_units(const DecodeParams& p, DecodeShared<Shape>& shared, int lane) {
  const int grid = static_cast<int>(gridDim.x);
  const int number = lane % (kWarpTiles * kDecodeWarps);
  // The next unit's item is read while this one's sequence is.
  int index = static_cast<int>(blockIdx.x);
  const int num_items = *p.num_items;
  int2 item = p.items[index / p.slots];
  for (int turn = 0;; ++turn, index += grid) {
    const int place = turn % kPlacedUnits;
    PlacedUnit& to = shared.units[place];
    const bool is_end = index / p.slots >= num_items;
    DecodeUnit unit = {};
    unit.context_len = -1;
    int64_t row = 0;
    if (!is_end) {
      const int first_token = item.y * kDecodeChunk + number * kTileTokens;
      const int64_t column = min(int64_t{first_token / p.block_size}, p.table_width - 1);
      const int64_t block = p.block_tables[item.x * p.table_width + column];
      unit = make_unit(p, index, item, p.context_lens[item.x]);
      row = (block * p.num_kv_heads + unit.kv_head) * p.block_size + first_token % p.block_size;
    }
    shared.unit_free[place].wait(turn / kPlacedUnits % 2 ^ 1);
    if (lane == number) to.row[number] = row;
    if (lane == 0) to.unit = unit;
    __syncwarp();
    if (lane == 0) shared.unit_ready[place].arrive();
    if (is_end) return;

    if (turn == 0) wait_for_previous();
    QueryLoad<Shape> queries;
    queries.load(p, unit, lane);
    if ((index + grid) / p.slots < num_items) item = p.items[(index + grid) / p.slots];
    queries.store(shared.queries[place], lane);
    __syncwarp();
    if (lane == 0) shared.query_ready[place].arrive();
  }
}

// The ring of tiles of a warp that computes.
template <typename Shape>
class TileRing {
 public:
  __device__ TileRing(const DecodeParams& p, DecodeShared<Shape>& shared, char* tiles, int depth,
                      int warp, int lane)
      : p_(p),
        shared_(shared),
        tiles_(tiles + 2 * Shape::kTileBytes * depth * warp),
        depth_(depth),
        warp_(warp),
        lane_(lane) {}

  // Queues copies of the next tiles that are visible, as long as there is room and their units are
  // known: at least those of the unit that this warp has waited for. To be called in every unit.
  __device__ void fill() {
    while (count_ < depth_) {
      const int place = turn_ % kPlacedUnits;
      const bool is_ready = shared_.unit_ready[place].is_over(turn_ / kPlacedUnits % 2);
      if (!__all_sync(0xffffffffu, is_ready)) return;
      const PlacedUnit& placed = shared_.units[place];
      if (placed.unit.context_len < 0) return;
      const Tile tile = tile_of(placed, tile_ * kDecodeWarps + warp_);
      if (++tile_ == kWarpTiles) {
        tile_ = 0;
        ++turn_;
      }
      if (!tile.is_visible(placed.unit.first_visible(p_.sliding_window))) continue;
      if (tile.has_newest_token()) wait_for_previous();
      const int64_t offset = tile.row * Shape::kRowBytes;
      char* to = tiles_ + 2 * Shape::kTileBytes * fill_slot_;
      warp_copy(to, static_cast<const char*>(p_.keys) + offset, to + Shape::kTileBytes,
                static_cast<const char*>(p_.values) + offset, Shape::kTileBytes,
                shared_.tile_full[warp_][fill_slot_], lane_);
      fill_slot_ = fill_slot_ + 1 == depth_ ? 0 : fill_slot_ + 1;
      ++count_;
    }
  }

  // Waits for the oldest tile; keys, then values.
  __device__ const char* front() {
    shared_.tile_full[warp_][slot_].wait(parity_);
    return tiles_ + 2 * Shape::kTileBytes * slot_;
  }
  // Takes the oldest tile out, which all lanes have read.
  __device__ void pop() {
    __syncwarp();
    if (++slot_ == depth_) {
      slot_ = 0;
      parity_ ^= 1;
    }
    --count_;
    fill();
  }

 private:
  const DecodeParams& p_;
  DecodeShared<Shape>& shared_;
  char* tiles_;
  int depth_;
  int warp_;
  int lane_;
  int turn_ = 0;  // the next tile to be copied: unit and number
  int tile_ = 0;
  int fill_slot_ = 0;
  int count_ = 0;
  int slot_ = 0;  // the oldest tile
  uint32_t parity_ = 0;
};

// The part of the warps that compute.
template <typename Shape>
__device__ void compute_units(const DecodeParams& p, DecodeShared<Shape>& shared, float* outputs,
                              TileRing<Shape>& ring, int warp, int lane) {
  int num_outputs = 0;
  for (int turn = 0;; ++turn) {
    const int place = turn % kPlacedUnits;
    shared.unit_ready[place].wait(turn / kPlacedUnits % 2);
    const PlacedUnit& placed = shared.units[place];
    if (placed.unit.context_len < 0) return;
    ring.fill();
    const int first_visible = placed.unit.first_visible(p.sliding_window);
    WarpOutput<Shape> output;
    output.clear();
    shared.query_ready[place].wait(turn / kPlacedUnits % 2);
    for (int i = 0; i < kWarpTiles; ++i) {
      const Tile tile = tile_of(placed, i * kDecodeWarps + warp);
      if (!tile.is_visible(first_visible)) continue;
      const char* data = ring.front();
      float scores[Shape::kHeadTiles][4];
      KeyTile<Shape> keys;
      keys.load(data, tile, lane);
      keys.multiply(shared.queries[place], lane, scores);
      ValueTile<Shape> values;
      values.load(data + Shape::kTileBytes, tile, lane);
      scale_and_mask<Shape>(scores, tile, first_visible, p.scale_log2, lane);
      output.soften(scores);
      output.add(values, scores);
      ring.pop();
    }
    if (placed.unit.is_visible(p.sliding_window)) {
      shared.outputs_free.wait(num_outputs % 2 ^ 1);
      const int heads = placed.unit.num_heads;
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
#pragma unroll
  for (int w = 0; w < kDecodeWarps; ++w) {
    const float2 maximum_sum = shared.maxima_sums[w][head];
    const float factor = fast_exp2(maximum_sum.x - total.maximum);
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
    finish_unit<typename Shape::T>(
        p, unit, is_for_all ? warp : 0, is_for_all ? kFinishWarps : 1,
        [&](int e) { return sum_of_warps<Shape>(shared, outputs, unit.num_heads, e); },
        [&] {
          __syncwarp();
          // As many arrivals either way.
          if (lane < (is_for_all ? 1 : kFinishWarps)) shared.outputs_free.arrive();
        });
  }
}

template <typename Shape>
__global__ void __launch_bounds__(kMmaThreads, 1)
    decode_attention_kernel(const __grid_constant__ DecodeParams p, int heads, int depth) {
  extern __shared__ __align__(128) char shared_bytes[];
  auto& shared = *reinterpret_cast<DecodeShared<Shape>*>(shared_bytes);
  auto* outputs = reinterpret_cast<float*>(&shared + 1);
  auto* tiles = reinterpret_cast<char*>(outputs) + decode_outputs_bytes<Shape>(heads);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;

  if (threadIdx.x == 0) {
    for (int w = 0; w < kDecodeWarps; ++w) {
      for (int i = 0; i < depth; ++i) shared.tile_full[w][i].init(kCopyArrivals);
    }
    for (int i = 0; i < kPlacedUnits; ++i) {
      shared.unit_ready[i].init(1);
      shared.query_ready[i].init(1);
      shared.unit_free[i].init(kDecodeWarps + kFinishWarps);
    }
    for (int i = 0; i < kFinishWarps; ++i) shared.outputs_full[i].init(kDecodeWarps);
    shared.outputs_free.init(kFinishWarps);
    publish_barriers();
  }
  __syncthreads();
  if (warp < kDecodeWarps) {
    TileRing<Shape> ring(p, shared, tiles, depth, warp, lane);
    compute_units(p, shared, outputs, ring, warp, lane);
  } else if (warp < kDecodeWarps + kFinishWarps) {
    finish_units(p, shared, outputs, warp - kDecodeWarps, lane);
  } else {
    place_units(p, shared, lane);
  }
}

}  // namespace quire::ops::cuda
