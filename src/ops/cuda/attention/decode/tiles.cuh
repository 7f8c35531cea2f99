#pragma once
// A warp's work on tiles of the cache, 16 tokens' keys and values, with tensor cores, and the sizes
// of it.
//
// Both products of a tile have the cache as the 16-row operand and the unit's rows (decode.cuh) as
// the 8 columns, called heads here: they are that where a sequence has one query. The order in
// which the head's elements are summed, and that in which elements are rows of the output, is free,
// so that a lane's operands are what lies side by side in memory:
//   scores[token, head] = K q^T: lane (g, t) = (lane / 4, lane % 4) reads of tokens g and g + 8 the
//     16 bytes t, t + 4, ...; so it does of query g
//   out^T[element, head] = V^T p^T: lane (g, t) reads of tokens 2t, 2t + 1, 2t + 8 and 2t + 9 the
//     pieces g, g + 8, ...; two tokens' elements are then paired
// The probabilities' registers become the second product's operand by a transposition in registers.
// An fp8 cache is converted to float16 in registers.
#include <type_traits>

#include "ops/cuda/attention/decode/decode.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/ptx/convert.cuh"
#include "ops/cuda/ptx/mma.cuh"

namespace quire::ops::cuda {

static_assert(kDecodeChunk == kTileTokens * kWarpTiles * kDecodeWarps);

// kMany_: sequences may have several queries.
template <typename T_, typename Kv_, int kHeadDim_, int kHeadTiles_, bool kMany_>
struct DecodeShape {
  static constexpr bool kMany = kMany_;
  using T = T_;
  using Kv = Kv_;
  static constexpr bool kIsFp8 = kIsFloat8<Kv>;
  using Operand = std::conditional_t<kIsFp8, __half, T>;

  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kHeadTiles = kHeadTiles_;
  static constexpr int kHeads = 8 * kHeadTiles;
  static constexpr int kElementBytes = static_cast<int>(sizeof(Kv));  // of the cache
  static constexpr int kRowBytes = kHeadDim * kElementBytes;

  static constexpr int kTileBytes = kTileTokens * kRowBytes;  // keys, and as much for values

  // Tiles that a warp works on together where it can, to wait less.
  static constexpr int kTilesPerStep = kTileBytes <= 4096 ? 2 : 1;

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

  // Rows of queries in shared memory, 16-bit elements.
  static constexpr int kQueryStride = decode_query_stride(kHeadDim, kElementBytes);
  static_assert(kQueryStride >= kPaddedKeyDim);
  static constexpr int kQueryLoads = kHeads * kPaddedKeyDim / kPackSize / 32;
  static_assert(kHeads * kPaddedKeyDim % (32 * kPackSize) == 0);
};

// Part of a unit: 16 tokens of the cache, seen by one warp.
struct Tile {
  int64_t row;
  int first_token;
  int end;  // of the context

  __device__ bool is_visible(int first_visible) const {
    return first_token < end && first_token + kTileTokens > first_visible;
  }
  // Whether it has one of the newest `count` tokens.
  __device__ bool has_newest(int count) const { return end - count < first_token + kTileTokens; }
  // Tokens from the end of the context on have no data: the last token's stands for theirs.
  __device__ int present(int token) const { return min(token, end - 1 - first_token); }
};

// Two numbers of float8 as float16. Those of e5m2 are the upper bytes of it.
template <typename Kv>
__device__ __forceinline__ uint32_t halves_of_fp8(uint32_t pair) {
  if constexpr (std::is_same_v<Kv, __nv_fp8_e5m2>) return __byte_perm(pair, 0, 0x1404);
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
  return halves.x | static_cast<uint32_t>(halves.y) << 16;
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
            a[0] = halves_of_fp8<typename Shape::Kv>(low & 0xffffu);
            a[1] = halves_of_fp8<typename Shape::Kv>(high & 0xffffu);
            a[2] = halves_of_fp8<typename Shape::Kv>(low >> 16);
            a[3] = halves_of_fp8<typename Shape::Kv>(high >> 16);
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
      return halves_of_fp8<typename Shape::Kv>(e % 2 == 0 ? two & 0xffffu : two >> 16);
    } else {
      return __byte_perm(words[2 * i][e / 2], words[2 * i + 1][e / 2],
                         e % 2 == 0 ? 0x5410 : 0x7632);
    }
  }
};

// A warp's results of a unit so far. Column 2 t + i of head tile n is index [n][i].
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
  // is brought too. At least one score is finite where each sequence has one query.
  template <int kTiles>
  __device__ void soften(float (&scores)[kTiles][Shape::kHeadTiles][4]) {
#pragma unroll
    for (int n = 0; n < Shape::kHeadTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float highest = maximum[n][i];
#pragma unroll
        for (int s = 0; s < kTiles; ++s) {
          highest = fmaxf(highest, fmaxf(scores[s][n][i], scores[s][n][i + 2]));
        }
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2) {
          highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, lanes));
        }
        const float base = Shape::kMany && highest == -INFINITY ? 0.0f : highest;
        const float factor = fast_exp2(maximum[n][i] - base);
        maximum[n][i] = highest;
        sum[n][i] *= factor;
#pragma unroll
        for (int s = 0; s < kTiles; ++s) {
          scores[s][n][i] = fast_exp2(scores[s][n][i] - base);
          scores[s][n][i + 2] = fast_exp2(scores[s][n][i + 2] - base);
          sum[n][i] += scores[s][n][i] + scores[s][n][i + 2];
        }
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
    const T* queries = static_cast<const T*>(p.q) + unit.first_query * p.q_stride;
#pragma unroll
    for (int i = 0; i < Shape::kQueryLoads; ++i) {
      const int piece = lane + i * 32;
      const int head = piece / (Shape::kPaddedKeyDim / kPackSize);
      const int element = piece % (Shape::kPaddedKeyDim / kPackSize) * kPackSize;
      packs[i] = {};
      if (head < unit.num_rows && element < Shape::kHeadDim) {
        const UnitRow at = unit_row<Shape::kMany>(p, unit, head);
        packs[i] = load_pack(queries + at.query * p.q_stride + at.head * Shape::kHeadDim + element);
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

// The tokens [first, end) that a lane's columns see.
template <typename Shape>
class VisibleTokens {
 public:
  __device__ VisibleTokens(const DecodeParams& p, const DecodeUnit& unit, int lane) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        // Beyond the unit's rows there are zeros, whose scores are finite whatever they see.
        const int row = Shape::kMany ? min(n * 8 + lane % 4 * 2 + i, unit.num_rows - 1) : 0;
        const int query = unit_row<Shape::kMany>(p, unit, row).query;
        end_[n][i] = unit.end_of(query);
        first_[n][i] = p.sliding_window > 0 ? max(0, end_[n][i] - p.sliding_window) : 0;
      }
    }
  }
  // Whether column 2 t + i of head tile n sees the token.
  __device__ bool has(int n, int i, int token) const {
    const int at = Shape::kMany ? n : 0;
    const int column = Shape::kMany ? i : 0;
    return token >= first_[at][column] && token < end_[at][column];
  }

 private:
  static constexpr int kColumnTiles = Shape::kMany ? Shape::kHeadTiles : 1;
  static constexpr int kColumns = Shape::kMany ? 2 : 1;
  int first_[kColumnTiles][kColumns];
  int end_[kColumnTiles][kColumns];
};

// Scores of tokens that the query does not see become minus infinity.
template <typename Shape>
__device__ __forceinline__ void scale_and_mask(float (&scores)[Shape::kHeadTiles][4],
                                               const Tile& tile,
                                               const VisibleTokens<Shape>& visible, float scale,
                                               int lane) {
#pragma unroll
  for (int row = 0; row < 4; row += 2) {
    const int token = tile.first_token + lane / 4 + 4 * row;
#pragma unroll
    for (int n = 0; n < Shape::kHeadTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = scores[n][row + i];
        score = visible.has(n, i, token) ? score * scale : -INFINITY;
      }
    }
  }
}

}  // namespace quire::ops::cuda
