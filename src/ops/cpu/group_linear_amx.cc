// Products of many rows with int8 weights by AMX. A tile of inputs has 16 rows of a group's
// integers, 64 bytes at most; one of weights has 16 lanes of a group's steps, as the panel has
// them; one of sums 16 x 16 integers. A group's sums are stored, and AVX-512 scales and adds them
// to the rows' sums of float32, as group_linear_avx512vnni.cc does: sums of integers are exact, so
// the bits are the same.
//
// Scaling takes longer than the matrix unit, whose instructions have long latencies: two groups of
// 64 lanes are multiplied while the two before them are scaled, a tile of sums beside 16 registers
// of them, so that the processor has both at hand. A tile is loaded one tile of sums ahead, and
// sums are stored one tile late. Two groups are scaled together, 4 rows at a time, so that the
// rows' float32 sums stay in registers meanwhile.
#include <immintrin.h>

#include "ops/cpu/group_lanes_avx512.h"
#include "ops/cpu/group_rows_avx512.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/tile_shapes_amx.h"

namespace quire::ops::amx {
namespace {

using avx512::kRegisters;
using avx512::kStepBytes;

constexpr int kRows = kAmxGroupRows;  // of a tile
constexpr int kTileBytes = 64;        // of a tile's row
constexpr int kLineBytes = 64;
constexpr int kChunk = 2;       // groups that are scaled together
constexpr int kScaledRows = 4;  // rows that are scaled together
// Bytes ahead of the weights in use that are asked for: about the latency of memory at its
// bandwidth a core.
constexpr int64_t kPrefetchBytes = 4096;

// Of a row of a tile of inputs; larger groups are two tiles.
int depth_bytes(int group_size) {
  return group_size < kTileBytes ? group_size : kTileBytes;
}

// Tiles 0 and 1 are sums, 2 and 3 inputs, 4 to 7 weights.
void shape_tiles(const GroupTile& tile) {
  TileShapes shapes;
  const int bytes = depth_bytes(tile.group_size);
  for (int i = 0; i < 2; ++i) shapes.set(i, kRows, kTileBytes);
  for (int i = 2; i < 4; ++i) shapes.set(i, kRows, bytes);
  for (int i = 4; i < 8; ++i) shapes.set(i, bytes / 4, kTileBytes);
  shapes.load();
}

// A group as it is packed, and what its products are.
struct Inputs {
  int starts[kRows];
  float scales[kRows];
  float sums[kRows];

  const char* integers() const { return reinterpret_cast<const char*>(this + 1); }
};
static_assert(sizeof(Inputs) == kInt8GroupHeader * kRows);
struct alignas(64) Products {
  int sums[kRows][kPanelLanes];
  float scales[kPanelLanes];  // of the weights
  float offsets[kPanelLanes];
};

template <int kDepths>
[[gnu::always_inline]] inline void load_inputs(const Inputs* inputs, int64_t stride) {
  const auto bytes = static_cast<size_t>(stride);
  _tile_loadd(2, inputs->integers(), bytes);
  if constexpr (kDepths == 2) _tile_loadd(3, inputs->integers() + kRows * kTileBytes, bytes);
}

// Weights of 16 lanes, for sums in tile 0 or 1.
template <int kSums, int kDepths>
[[gnu::always_inline]] inline void load_weights(const char* weights) {
  const char* const second = weights + kTileBytes / 4 * kStepBytes;
  if constexpr (kSums == 0) {
    _tile_loadd(4, weights, kStepBytes);
    if constexpr (kDepths == 2) _tile_loadd(5, second, kStepBytes);
  } else {
    _tile_loadd(6, weights, kStepBytes);
    if constexpr (kDepths == 2) _tile_loadd(7, second, kStepBytes);
  }
}

// Sums of what is loaded.
template <int kSums, int kDepths>
[[gnu::always_inline]] inline void multiply_loaded() {
  if constexpr (kSums == 0) {
    _tile_zero(0);
    _tile_dpbsud(0, 2, 4);
    if constexpr (kDepths == 2) _tile_dpbsud(0, 3, 5);
  } else {
    _tile_zero(1);
    _tile_dpbsud(1, 2, 6);
    if constexpr (kDepths == 2) _tile_dpbsud(1, 3, 7);
  }
}

template <int kSums>
[[gnu::always_inline]] inline void store_tile(int* to) {
  if constexpr (kSums == 0) {
    _tile_stored(0, to, kStepBytes);
  } else {
    _tile_stored(1, to, kStepBytes);
  }
}

// The groups of a tile in order, multiplied 16 lanes at a time. What is multiplied next is loaded.
template <bool kOffsets, int kDepths>
class Multiplication {
 public:
  // `unused` is memory for the sums of one group.
  Multiplication(const GroupTile& tile, Products& unused)
      : tile_(tile),
        header_bytes_(int64_t{avx512::header_bytes(tile)} * (kOffsets ? 2 : 1)),
        group_bytes_(header_bytes_ + int64_t{kPanelLanes} * tile.group_size),
        input_stride_(depth_bytes(tile.group_size)),
        input_bytes_((kInt8GroupHeader + tile.group_size) * kRows),
        next_bytes_(tile.next_bytes / (tile.groups * kRegisters)),
        header_(static_cast<const char*>(tile.weights)),
        inputs_(static_cast<const char*>(tile.activations)),
        next_(static_cast<const char*>(tile.next)),
        stored_(unused.sums[0]) {
    load_inputs<kDepths>(inputs(), input_stride_);
    load_weights<0, kDepths>(header_ + header_bytes_);
  }

  // The scales and offsets of the group that is multiplied next.
  [[gnu::always_inline]] void load_headers(Products& to) const {
    const float* const block = avx512::block_of(tile_, group_);
#pragma GCC unroll 4
    for (int lane = 0; lane < kPanelLanes; lane += 16) {
      _mm512_store_ps(to.scales + lane, avx512::load_header(tile_, header_, block, lane));
      if constexpr (!kOffsets) continue;
      _mm512_store_ps(to.offsets + lane,
                      avx512::load_header(tile_, header_ + avx512::header_bytes(tile_),
                                          block + kPanelLanes, lane));
    }
  }

  // Multiplies lanes 16 * kPart and after it, for `to`, and stores the sums before these.
  template <int kPart>
  [[gnu::always_inline]] void multiply_part(Products& to) {
    constexpr int kSums = kPart % 2;
    prefetch(kPart);
    multiply_loaded<kSums, kDepths>();
    if constexpr (kPart + 1 == kRegisters) go_on();
    constexpr int kNext = (kPart + 1) % kRegisters;
    load_weights<1 - kSums, kDepths>(header_ + header_bytes_ + kNext * kTileBytes);
    if constexpr (kNext == 0) load_inputs<kDepths>(inputs(), input_stride_);
    store_tile<1 - kSums>(stored_);
    stored_ = to.sums[0] + kPart * 16;
  }
  // Of the last part that was multiplied, where that ended a group.
  [[gnu::always_inline]] void store_last() {
    store_tile<1>(stored_);
  }

  [[gnu::always_inline]] void multiply_group(Products& to) {
    load_headers(to);
    multiply_part<0>(to);
    multiply_part<1>(to);
    multiply_part<2>(to);
    multiply_part<3>(to);
  }

 private:
  const Inputs* inputs() const {
    return reinterpret_cast<const Inputs*>(inputs_);
  }

  // To the next group; the last one stays, and is loaded for nothing.
  [[gnu::always_inline]] void go_on() {
    ++group_;
    const bool is_last = group_ == tile_.groups;
    header_ += is_last ? 0 : group_bytes_;
    inputs_ += is_last ? 0 : input_bytes_;
  }

  // Asks for a quarter of what lies ahead in these weights, for what the tile's caller says, and
  // for a row of `out`, which is written at the end.
  [[gnu::always_inline]] void prefetch(int part) {
    const int64_t quarter = group_bytes_ / kRegisters;
    const char* const ahead = header_ + kPrefetchBytes + part * quarter;
    for (int64_t i = 0; i < quarter; i += kLineBytes) _mm_prefetch(ahead + i, _MM_HINT_T0);
    for (int64_t i = 0; i < next_bytes_; i += kLineBytes) _mm_prefetch(next_ + i, _MM_HINT_T1);
    next_ += next_bytes_;
    if (out_rows_ == tile_.rows) return;
    const float* const out = tile_.out + out_rows_ * tile_.out_stride;
    for (int lane = 0; lane < tile_.cols; lane += 16) _mm_prefetch(out + lane, _MM_HINT_T0);
    ++out_rows_;
  }

  const GroupTile& tile_;
  const int64_t header_bytes_;  // scales and offsets
  const int64_t group_bytes_;   // of weights
  const int64_t input_stride_;
  const int64_t input_bytes_;  // of a group
  const int64_t next_bytes_;   // that a part asks for
  int64_t group_ = 0;
  int out_rows_ = 0;  // that were asked for
  const char* header_;
  const char* inputs_;
  const char* next_;
  int* stored_;  // where the tile of sums goes that is not stored yet
};

using Sums = __m512[kScaledRows][kRegisters];

[[gnu::always_inline]] inline void load_rows(const float (*from)[kPanelLanes], Sums& sums) {
#pragma GCC unroll 4
  for (int row = 0; row < kScaledRows; ++row) {
#pragma GCC unroll 4
    for (int part = 0; part < kRegisters; ++part) {
      sums[row][part] = _mm512_load_ps(from[row] + part * 16);
    }
  }
}

[[gnu::always_inline]] inline void store_rows(const Sums& sums, float (*to)[kPanelLanes]) {
#pragma GCC unroll 4
  for (int row = 0; row < kScaledRows; ++row) {
#pragma GCC unroll 4
    for (int part = 0; part < kRegisters; ++part) {
      _mm512_store_ps(to[row] + part * 16, sums[row][part]);
    }
  }
}

// sums += products * scales, and offsets, of the rows from `first` on.
template <bool kOffsets>
[[gnu::always_inline]] inline void scale_rows(const Inputs* inputs, const Products& products,
                                              int first, Sums& sums) {
  __m512 scales[kRegisters];
#pragma GCC unroll 4
  for (int part = 0; part < kRegisters; ++part) {
    scales[part] = _mm512_load_ps(products.scales + part * 16);
  }
#pragma GCC unroll 4
  for (int row = 0; row < kScaledRows; ++row) {
    const __m512i start = _mm512_set1_epi32(inputs->starts[first + row]);
    const __m512 scale = _mm512_set1_ps(inputs->scales[first + row]);
#pragma GCC unroll 4
    for (int part = 0; part < kRegisters; ++part) {
      const __m512i integers =
          _mm512_add_epi32(start, _mm512_load_si512(products.sums[first + row] + part * 16));
      sums[row][part] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers),
                                        _mm512_mul_ps(scales[part], scale), sums[row][part]);
    }
  }
  if constexpr (!kOffsets) return;
#pragma GCC unroll 4
  for (int part = 0; part < kRegisters; ++part) {
    const __m512 offsets = _mm512_load_ps(products.offsets + part * 16);
#pragma GCC unroll 4
    for (int row = 0; row < kScaledRows; ++row) {
      sums[row][part] =
          _mm512_fmadd_ps(_mm512_set1_ps(inputs->sums[first + row]), offsets, sums[row][part]);
    }
  }
}

// Adds a chunk of one or two groups to the rows' sums while the next groups, of which there may be
// fewer, are multiplied.
template <bool kOffsets, int kDepths>
void scale_chunk(const char* inputs, int64_t input_bytes, int groups, const Products* products,
                 int next_groups, Multiplication<kOffsets, kDepths>& next, Products* next_products,
                 float (*all_sums)[kPanelLanes]) {
  const auto* const first = reinterpret_cast<const Inputs*>(inputs);
  const auto* const second = reinterpret_cast<const Inputs*>(inputs + input_bytes);
  constexpr int kHalf = kRows / 2;
  for (int half = 0; half < kChunk; ++half) {
    const bool multiplies = half < next_groups;
    Products& to = next_products[half];
    int row = half * kHalf;
    Sums sums;
    load_rows(all_sums + row, sums);
    if (multiplies) {
      next.load_headers(to);
      next.template multiply_part<0>(to);
    }
    scale_rows<kOffsets>(first, products[0], row, sums);
    if (multiplies) next.template multiply_part<1>(to);
    if (groups == kChunk) scale_rows<kOffsets>(second, products[1], row, sums);
    store_rows(sums, all_sums + row);

    row += kScaledRows;
    load_rows(all_sums + row, sums);
    if (multiplies) next.template multiply_part<2>(to);
    scale_rows<kOffsets>(first, products[0], row, sums);
    if (multiplies) next.template multiply_part<3>(to);
    if (groups == kChunk) scale_rows<kOffsets>(second, products[1], row, sums);
    store_rows(sums, all_sums + row);
  }
}

int groups_of_chunk(const GroupTile& tile, int64_t first) {
  const int64_t left = tile.groups - first;
  return static_cast<int>(left < 0 ? 0 : left < kChunk ? left : kChunk);
}

template <bool kOffsets, int kDepths>
void multiply(const GroupTile& tile) {
  Products products[2][kChunk];
  alignas(64) float sums[kRows][kPanelLanes];
  avx512::load_sums(tile, tile.rows, sums);
  for (int row = tile.rows; row < kRows; ++row) {
    for (int lane = 0; lane < kPanelLanes; ++lane) sums[row][lane] = 0.0f;
  }
  shape_tiles(tile);
  Multiplication<kOffsets, kDepths> next(tile, products[1][1]);
  for (int i = 0; i < groups_of_chunk(tile, 0); ++i) next.multiply_group(products[0][i]);
  const int64_t input_bytes = (kInt8GroupHeader + tile.group_size) * kRows;
  const char* inputs = static_cast<const char*>(tile.activations);
  for (int64_t first = 0, chunk = 0; first < tile.groups; first += kChunk, chunk ^= 1) {
    const int next_groups = groups_of_chunk(tile, first + kChunk);
    if (next_groups == 0) next.store_last();
    scale_chunk(inputs, input_bytes, groups_of_chunk(tile, first), products[chunk], next_groups,
                next, products[chunk ^ 1], sums);
    inputs += kChunk * input_bytes;
  }
  _tile_release();
  avx512::store_sums(tile, tile.rows, sums);
}

}  // namespace

void pack_i8_tiles(const Int8Rows& rows) {
  const int depth = depth_bytes(rows.group_size);
  avx512::pack_groups(rows, kRows, [depth](__m128i bytes, char* data, int row, int i) {
    char* const at = data + i / kTileBytes * kTileBytes * kRows + row * depth + i % kTileBytes;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), bytes);
  });
}

void linear_i8_tiles(const GroupTile& tile) {
  const bool is_deep = tile.group_size > kTileBytes;
  if (tile.has_offsets) return is_deep ? multiply<true, 2>(tile) : multiply<true, 1>(tile);
  return is_deep ? multiply<false, 2>(tile) : multiply<false, 1>(tile);
}

}  // namespace quire::ops::amx
