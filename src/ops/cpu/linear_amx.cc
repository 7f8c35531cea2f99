// Products of bfloat16 by AMX. A tile holds 16 rows of 64 bytes: 16 rows of inputs by 32 values, or
// 16 steps of a panel by 16 of its lanes, as the panel has them, or 16 x 16 sums of float32. One
// instruction adds 16 steps to a tile of sums; in each sum it adds the first values of the steps up
// in a chain, the second ones in another, and both to the sum. So a row's sums follow from the row
// and the weights, whatever rows lie beside it.
//
// One row, which waits for memory, does the same in AVX-512: its loads are not as long as a tile's.
// Up to 16 rows pass over a panel once, with four tiles of sums. More, up to 32, pass over its two
// halves, with 2 x 2 tiles of sums, so that each tile that is loaded serves two instructions.
#include <immintrin.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/lanes_avx512.h"
#include "ops/cpu/tile_shapes_amx.h"

namespace quire::ops::amx {
namespace {

using avx512::lanes_of;

constexpr int kTileSide = 16;                    // rows of a tile, and 4-byte words of a row
constexpr int kParts = kPanelLanes / kTileSide;  // tiles that a panel's lanes are
constexpr int kStepBytes = kPanelLanes * 4;
constexpr int kTileLanesBytes = kTileSide * 4;
constexpr int64_t kDepthBytes = int64_t{kAmxTileSteps} * kStepBytes;  // of weights
constexpr int kLineBytes = 64;
// Bytes ahead of the weights in use that are asked for where few rows leave memory the slower part.
constexpr int64_t kPrefetchBytes = 2 * kDepthBytes;

// Tiles 0 to 3 are sums, 4 and 5 inputs, 6 and 7 weights.
void shape_tiles(int rows) {
  const int first = rows < kTileSide ? rows : kTileSide;
  const bool is_tall = rows > kTileSide;
  TileShapes shapes;
  shapes.set(0, first, kTileLanesBytes);
  shapes.set(1, first, kTileLanesBytes);
  shapes.set(2, is_tall ? rows - kTileSide : first, kTileLanesBytes);
  shapes.set(3, is_tall ? rows - kTileSide : first, kTileLanesBytes);
  shapes.set(4, first, kTileLanesBytes);
  if (is_tall) shapes.set(5, rows - kTileSide, kTileLanesBytes);
  shapes.set(6, kTileSide, kTileLanesBytes);
  shapes.set(7, kTileSide, kTileLanesBytes);
  shapes.load();
}

// Where a block's sums are while they are in memory: in `out` where its lanes all exist, else in
// `spare`, which has room for all lanes.
struct SumsMemory {
  float* at;
  int64_t stride;  // floats from a row to the next

  float* part(int row, int part) const { return at + row * stride + part * kTileSide; }
  int64_t stride_bytes() const { return stride * 4; }
};

void copy_to_spare(const LinearTile& tile, const SumsMemory& spare) {
  for (int row = 0; row < tile.rows; ++row) {
    for (int part = 0; part < kParts; ++part) {
      _mm512_storeu_ps(spare.part(row, part),
                       _mm512_maskz_loadu_ps(lanes_of(tile.cols, part),
                                             tile.out + row * tile.out_stride + part * kTileSide));
    }
  }
}

// To `out`, with the bias where there is one.
void finish(const LinearTile& tile, const SumsMemory& sums) {
  for (int part = 0; part < kParts; ++part) {
    const __mmask16 lanes = lanes_of(tile.cols, part);
    const __m512 bias = tile.bias != nullptr
                            ? _mm512_maskz_loadu_ps(lanes, tile.bias + part * kTileSide)
                            : _mm512_setzero_ps();
    for (int row = 0; row < tile.rows; ++row) {
      const __m512 sum = _mm512_loadu_ps(sums.part(row, part));
      _mm512_mask_storeu_ps(tile.out + row * tile.out_stride + part * kTileSide, lanes,
                            tile.bias != nullptr ? _mm512_add_ps(sum, bias) : sum);
    }
  }
}

// The weights of a depth, those of the last one padded with zeros in `spare`.
struct Depths {
  const LinearTile* tile;
  char* spare;  // kDepthBytes, aligned to 64

  int64_t count() const { return (tile->steps + kAmxTileSteps - 1) / kAmxTileSteps; }
  const char* weights(int64_t depth) const {
    const char* const from = static_cast<const char*>(tile->weights) + depth * kDepthBytes;
    const int64_t steps = tile->steps - depth * kAmxTileSteps;
    if (steps >= kAmxTileSteps) return from;
    for (int64_t i = 0; i < kDepthBytes; i += kLineBytes) {
      _mm512_store_si512(spare + i, i < steps * kStepBytes ? _mm512_loadu_si512(from + i)
                                                           : _mm512_setzero_si512());
    }
    finish_stores(spare);
    return spare;
  }
  const char* inputs(int64_t depth) const {
    return static_cast<const char*>(tile->activations) + depth * tile->rows * kTileLanesBytes;
  }
};

void prefetch(const char* first, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kLineBytes) _mm_prefetch(first + i, _MM_HINT_T0);
}

// What tiles do with numbers too small to be normal: they are zeros, read and written.
class WithoutDenormals {
 public:
  WithoutDenormals() : before_(_mm_getcsr()) {
    constexpr unsigned kFlushAndDenormalsAreZeros = 0x8040;
    _mm_setcsr(before_ | kFlushAndDenormalsAreZeros);
  }
  ~WithoutDenormals() { _mm_setcsr(before_); }
  WithoutDenormals(const WithoutDenormals&) = delete;
  WithoutDenormals& operator=(const WithoutDenormals&) = delete;

 private:
  unsigned before_;
};

__m512 first_of_pairs(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
__m512 second_of_pairs(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(int(0xffff0000))));
}

// sums += the row's products.
void add_row(const LinearTile& tile, __m512 (&sums)[kParts]) {
  constexpr int64_t kAhead = 4096;
  const WithoutDenormals without_denormals;
  const char* weights = static_cast<const char*>(tile.weights);
  const auto* inputs = static_cast<const int*>(tile.activations);  // pairs
  for (int64_t step = 0; step < tile.steps;) {
    __m512 first[kParts], second[kParts];
    for (int part = 0; part < kParts; ++part) first[part] = second[part] = _mm512_setzero_ps();
    const int64_t end = step + kAmxTileSteps < tile.steps ? step + kAmxTileSteps : tile.steps;
    for (; step < end; ++step, weights += kStepBytes) {
      const __m512i pair = _mm512_set1_epi32(inputs[step]);
      const __m512 x = first_of_pairs(pair);
      const __m512 y = second_of_pairs(pair);
      for (int part = 0; part < kParts; ++part) {
        _mm_prefetch(weights + kAhead + part * kLineBytes, _MM_HINT_T0);
        const __m512i w = _mm512_loadu_si512(weights + part * kLineBytes);
        first[part] = _mm512_fmadd_ps(x, first_of_pairs(w), first[part]);
        second[part] = _mm512_fmadd_ps(y, second_of_pairs(w), second[part]);
      }
    }
    for (int part = 0; part < kParts; ++part) {
      sums[part] = _mm512_add_ps(sums[part], _mm512_add_ps(first[part], second[part]));
    }
  }
}

void multiply_one_row(const LinearTile& tile) {
  __m512 sums[kParts];
  for (int part = 0; part < kParts; ++part) {
    sums[part] = tile.accumulate
                     ? _mm512_maskz_loadu_ps(lanes_of(tile.cols, part), tile.out + part * kTileSide)
                     : _mm512_setzero_ps();
  }
  add_row(tile, sums);
  for (int part = 0; part < kParts; ++part) {
    const __mmask16 lanes = lanes_of(tile.cols, part);
    if (tile.bias != nullptr) {
      sums[part] =
          _mm512_add_ps(sums[part], _mm512_maskz_loadu_ps(lanes, tile.bias + part * kTileSide));
    }
    _mm512_mask_storeu_ps(tile.out + part * kTileSide, lanes, sums[part]);
  }
}

void multiply_few_rows(const LinearTile& tile, const Depths& depths, const SumsMemory& sums) {
  const auto stride = static_cast<size_t>(sums.stride_bytes());
  if (tile.accumulate) {
    _tile_loadd(0, sums.part(0, 0), stride);
    _tile_loadd(1, sums.part(0, 1), stride);
    _tile_loadd(2, sums.part(0, 2), stride);
    _tile_loadd(3, sums.part(0, 3), stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t depth = 0; depth < depths.count(); ++depth) {
    const char* const weights = depths.weights(depth);
    const char* const ahead = weights + kPrefetchBytes;
    prefetch(ahead, kDepthBytes / 4);
    _tile_loadd(4, depths.inputs(depth), kTileLanesBytes);
    _tile_loadd(6, weights, kStepBytes);
    _tile_dpbf16ps(0, 4, 6);
    prefetch(ahead + kDepthBytes / 4, kDepthBytes / 4);
    _tile_loadd(7, weights + kTileLanesBytes, kStepBytes);
    _tile_dpbf16ps(1, 4, 7);
    prefetch(ahead + kDepthBytes / 2, kDepthBytes / 4);
    _tile_loadd(6, weights + 2 * kTileLanesBytes, kStepBytes);
    _tile_dpbf16ps(2, 4, 6);
    prefetch(ahead + kDepthBytes / 4 * 3, kDepthBytes / 4);
    _tile_loadd(7, weights + 3 * kTileLanesBytes, kStepBytes);
    _tile_dpbf16ps(3, 4, 7);
  }
  _tile_stored(0, sums.part(0, 0), stride);
  _tile_stored(1, sums.part(0, 1), stride);
  _tile_stored(2, sums.part(0, 2), stride);
  _tile_stored(3, sums.part(0, 3), stride);
}

// Parts 2 * half and 2 * half + 1 of the panel's lanes. The first half asks for both halves of
// what is read next: of this block with 32 rows, of the next one where the tile says so.
void multiply_half(const LinearTile& tile, const Depths& depths, const SumsMemory& sums, int half) {
  const auto stride = static_cast<size_t>(sums.stride_bytes());
  const int part = 2 * half;
  if (tile.accumulate) {
    _tile_loadd(0, sums.part(0, part), stride);
    _tile_loadd(1, sums.part(0, part + 1), stride);
    _tile_loadd(2, sums.part(kTileSide, part), stride);
    _tile_loadd(3, sums.part(kTileSide, part + 1), stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const int64_t count = depths.count();
  const int64_t next_bytes = half == 0 ? tile.next_bytes / count / kLineBytes * kLineBytes : 0;
  const char* next = static_cast<const char*>(tile.next);
  for (int64_t depth = 0; depth < count; ++depth, next += next_bytes) {
    const char* const weights = depths.weights(depth) + part * kTileLanesBytes;
    const char* const inputs = depths.inputs(depth);
    prefetch(next, next_bytes);
    _tile_loadd(4, inputs, kTileLanesBytes);
    _tile_loadd(6, weights, kStepBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, weights + kTileLanesBytes, kStepBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, inputs + kTileSide * kTileLanesBytes, kTileLanesBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums.part(0, part), stride);
  _tile_stored(1, sums.part(0, part + 1), stride);
  _tile_stored(2, sums.part(kTileSide, part), stride);
  _tile_stored(3, sums.part(kTileSide, part + 1), stride);
}

}  // namespace

void linear_bf16(const LinearTile& tile) {
  if (tile.rows == 1) return multiply_one_row(tile);
  alignas(64) float spare_sums[kAmxTileRows * kPanelLanes];
  alignas(64) char spare_weights[kDepthBytes];
  const Depths depths = {&tile, spare_weights};
  const bool is_whole = tile.cols == kPanelLanes;
  const SumsMemory sums =
      is_whole ? SumsMemory{tile.out, tile.out_stride} : SumsMemory{spare_sums, kPanelLanes};
  if (!is_whole && tile.accumulate) copy_to_spare(tile, sums);
  finish_stores(sums.at);
  shape_tiles(tile.rows);
  if (tile.rows <= kTileSide) {
    multiply_few_rows(tile, depths, sums);
  } else {
    multiply_half(tile, depths, sums, 0);
    multiply_half(tile, depths, sums, 1);
  }
  _tile_release();
  if (!is_whole || tile.bias != nullptr) finish(tile, sums);
}

void pack_bf16(const float* in, int64_t stride, int rows, int64_t k, uint16_t* out) {
  constexpr int64_t kDepth = 2 * kAmxTileSteps;  // values of a row that lie side by side
  for (int64_t depth = 0; depth < k; depth += kDepth) {
    for (int row = 0; row < rows; ++row, out += kDepth) {
      const float* const values = in + row * stride + depth;
      const auto lanes = [&](int64_t first) {
        const int64_t left = k - depth - first;
        return left >= 16 ? __mmask16(0xffff) : __mmask16(left <= 0 ? 0u : (1u << left) - 1);
      };
      const __m512 low = _mm512_maskz_loadu_ps(lanes(0), values);
      const __m512 high = _mm512_maskz_loadu_ps(lanes(16), values + 16);
      _mm512_storeu_si512(out, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }
}

}  // namespace quire::ops::amx
