#pragma once
// How the activations of a product, which other blocks have published, reach shared memory: part by
// part, by all threads, and through the norm where the product has one.
//
// A thread reads four columns of every 1,024, a slot. Squares, which the norm takes, are added up
// by warps, slot by slot, whatever the parts and however many rows there are. There are two ways.
// One reads slots row by row, as many at a time as make up for the time of a load. The other is for
// several rows of products that take longer than a load: it has the next slot of all rows on its
// way while products are computed, as loads take long behind the weights that come to a
// multiprocessor.
#include "core/warp_sum.cuh"
#include "ops/cuda/decoder_step/integer_slot.cuh"
#include "ops/cuda/decoder_step/slot.cuh"

namespace quire::ops::cuda::step {

inline constexpr int kColumnsPerThread = 4;
// Columns of a row that all threads read together: a slot.
inline constexpr int kReadColumns = kColumnsPerThread * kComputeThreads;
// Slots that are read at a time, where these are all: else twice as many.
inline constexpr int kFewSlotsAtOnce = 4;
static_assert(kReadColumns == kSlotDataBytes / 2);  // a slot of dense weights has as many columns

// Rows of activations that a product reads: those that blocks exchange, or the embedding's, where
// they are read row by row.
struct Rows {
  const Word* words;  // [rows, width / 2]
  uint32_t tag;
  int width;
  const void* embedding = nullptr;  // or the table, read at token_ids
  const int32_t* token_ids = nullptr;
};

// What becomes of activations on their way into shared memory.
struct NormStep {
  const float* weight;  // null: nothing
  bool scales;          // by the factor, which norm_factor() has
  float eps;
};

// The factor of an RMS norm, of the squares that the warps have stored.
__device__ __forceinline__ float norm_factor(const BlockState& block, int row, int n, float eps) {
  float total = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) total += block.squares()[warp * kMaxRows + row];
  return rsqrtf(total / static_cast<float>(n) + eps);
}

// The warp's sums of kCount values, a power of two, in the order of warp_sum(), with fewer
// exchanges: a lane gets the sum of value lane / (32 / kCount).
template <int kCount, int kDistance = 16>
__device__ __forceinline__ float warp_sums(const float (&values)[kCount], int lane) {
  if constexpr (kCount == 1) {
    float sum = values[0];
#pragma unroll
    for (int distance = kDistance; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    return sum;
  } else {
    constexpr int kHalf = kCount / 2;
    const bool upper = (lane & kDistance) != 0;
    float halves[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float other = upper ? values[i] : values[kHalf + i];
      halves[i] =
          (upper ? values[kHalf + i] : values[i]) + __shfl_xor_sync(0xffffffffu, other, kDistance);
    }
    return warp_sums<kHalf, kDistance / 2>(halves, lane);
  }
}

// Four columns of a row, as two pairs.
template <typename T>
__device__ __forceinline__ float square_of(const uint32_t (&pairs)[2]) {
  const float2 a = Elements<T>::unpack(pairs[0]);
  const float2 b = Elements<T>::unpack(pairs[1]);
  return a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
}

// Puts a thread's four columns of a row, from `column` of the part on, through the norm and into
// shared memory. By a whole warp; `exists`: of the lanes, those that have columns. Of integers all
// lanes do, as parts are whole multiples of a warp's columns.
// weight_of(): of the norm, for the four columns.
template <typename W, typename Weight>
__device__ __forceinline__ void store_four(const BlockState& block, int row, int column,
                                           bool exists, const uint32_t (&pairs)[2],
                                           const NormStep& norm, int width,
                                           const Weight& weight_of) {
  using T = typename W::Activation;
  const float2 a = Elements<T>::unpack(pairs[0]);
  const float2 b = Elements<T>::unpack(pairs[1]);
  const auto factor = [&] { return norm.scales ? norm_factor(block, row, width, norm.eps) : 1.0f; };
  if constexpr (W::kIsInteger) {
    float4 factors = make_float4(1, 1, 1, 1);
    if (norm.weight != nullptr) {
      const float of_row = factor();
      const float4 weight = weight_of();
      factors =
          make_float4(of_row * weight.x, of_row * weight.y, of_row * weight.z, of_row * weight.w);
    }
    const float values[4] = {a.x * factors.x, a.y * factors.y, b.x * factors.z, b.y * factors.w};
    store_integers<W>(block, row, column - kColumnsPerThread * block.lane, values);
  } else {
    if (!exists) return;
    uint32_t first = activations_of<W>(pairs[0]);
    uint32_t second = activations_of<W>(pairs[1]);
    if (norm.weight != nullptr) {
      const float of_row = factor();
      const float4 weight = weight_of();
      first = activations_of<W>(a.x * of_row * weight.x, a.y * of_row * weight.y);
      second = activations_of<W>(b.x * of_row * weight.z, b.y * of_row * weight.w);
    }
    uint32_t* to = place_of_four<W>(block.layout.x_at + row * block.layout.x_stride,
                                    static_cast<uint32_t>(column));
    to[0] = first;
    to[2] = second;
  }
}

// Four columns of so many rows and slots; waits until they are there.
template <int kCount>
struct Fetch {
  uint32_t pairs[kCount][2];

  // offset(i): elements from the first row's beginning; negative for none. row(i): its row.
  template <typename Offset, typename Row>
  __device__ __forceinline__ void run(const Rows& from, const Offset& offset, const Row& row) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) pairs[i][0] = pairs[i][1] = 0;
    if (from.embedding != nullptr) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int at = offset(i);
        if (at < 0) continue;
        const int64_t element = at + (from.token_ids[row(i)] - row(i)) * int64_t{from.width};
        const uint2 bits = static_cast<const uint2*>(from.embedding)[element / 4];
        pairs[i][0] = bits.x;
        pairs[i][1] = bits.y;
      }
      return;
    }
    Word words[kCount][2];
    bool complete;
    do {
      complete = true;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int at = offset(i);
        words[i][0] = words[i][1] = make_word(0, from.tag);
        if (at >= 0) load_two_words(from.words + at / 2, words[i][0], words[i][1]);
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        complete = complete && tag_of(words[i][0]) == from.tag && tag_of(words[i][1]) == from.tag;
      }
    } while (__any_sync(0xffffffffu, !complete));
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      pairs[i][0] = payload_of(words[i][0]);
      pairs[i][1] = payload_of(words[i][1]);
    }
  }
};

// Reads row by row. kSquares: adds up squares; kStores: stores the activations.
template <typename W, bool kSquares, bool kStores>
class RowReader {
 public:
  __device__ RowReader(const BlockState& block, const Rows& from, const NormStep& norm)
      : block_(block), from_(from), norm_(norm) {
    if (kSquares && block.lane < kMaxRows) block.squares()[block.warp * kMaxRows + block.lane] = 0;
    __syncwarp();
  }

  __device__ __forceinline__ void ask(int) {}

  // Columns [begin, end) of all rows. What is read at a time costs the time of a load; what is not
  // there costs instructions.
  __device__ __forceinline__ void read(int begin, int end) {
    if (block_.rows * (end - begin) <= kFewSlotsAtOnce * kReadColumns) {
      read_slots<kFewSlotsAtOnce>(begin, end);
    } else {
      read_slots<2 * kFewSlotsAtOnce>(begin, end);
    }
  }

  __device__ __forceinline__ void finish() {}

 private:
  using T = typename W::Activation;

  template <int kAtOnce>
  __device__ __forceinline__ void read_slots(int begin, int end) {
    // Ahead of the wait, if of all.
    constexpr int kWeightsAtOnce = kAtOnce <= kFewSlotsAtOnce ? kAtOnce : 1;
    const int slots_per_row = (end - begin + kReadColumns - 1) / kReadColumns;
    const int thread_column = kColumnsPerThread * block_.thread;
    int row = 0;
    int slot = 0;
#pragma unroll 1
    while (row < block_.rows) {
      int rows[kAtOnce];     // -1: there is no such slot
      int columns[kAtOnce];  // of the part
      float4 weights[kWeightsAtOnce];
      const auto weight_at = [&](int column) {
        return *reinterpret_cast<const float4*>(norm_.weight + begin + column);
      };
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        columns[i] = slot * kReadColumns + thread_column;
        rows[i] = row < block_.rows && begin + columns[i] < end ? row : -1;
        if constexpr (kStores && kWeightsAtOnce == kAtOnce) {
          weights[i] = norm_.weight != nullptr && rows[i] >= 0 ? weight_at(columns[i])
                                                               : make_float4(1, 1, 1, 1);
        }
        if (++slot == slots_per_row) {
          slot = 0;
          ++row;
        }
      }
      Fetch<kAtOnce> fetch;
      fetch.run(
          from_,
          [&](int i) { return rows[i] < 0 ? -1 : rows[i] * from_.width + begin + columns[i]; },
          [&](int i) { return rows[i]; });
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at_row = __shfl_sync(0xffffffffu, rows[i], 0);
        if (at_row < 0) continue;  // the whole warp has none
        if constexpr (kSquares) {
          const float sum = warp_sum(square_of<T>(fetch.pairs[i]));
          if (block_.lane == 0) block_.squares()[block_.warp * kMaxRows + at_row] += sum;
        }
        if constexpr (kStores) {
          store_four<W>(block_, at_row, columns[i], rows[i] >= 0, fetch.pairs[i], norm_,
                        from_.width, [&] {
                          return kWeightsAtOnce == kAtOnce ? weights[i % kWeightsAtOnce]
                                                           : weight_at(columns[i]);
                        });
        }
      }
    }
  }

  const BlockState& block_;
  const Rows& from_;
  const NormStep& norm_;
};

// Reads the columns of all rows that have been asked for: in the meantime products are computed.
template <typename W, bool kSquares, bool kStores>
class AheadReader {
 public:
  __device__ AheadReader(const BlockState& block, const Rows& from, const NormStep& norm)
      : block_(block), from_(from), norm_(norm) {}

  // For the slot of columns from `begin` on, which is to be read next.
  __device__ __forceinline__ void ask(int begin) {
    column_ = begin + kColumnsPerThread * block_.thread;
    load();
    if constexpr (kStores) {
      weight_ = make_float4(1, 1, 1, 1);
      if (norm_.weight != nullptr && column_ < from_.width) {
        weight_ = *reinterpret_cast<const float4*>(norm_.weight + column_);
      }
    }
  }

  // Columns [begin, end) of all rows, of which the first slot has been asked for.
  __device__ __forceinline__ void read(int begin, int end) {
#pragma unroll 1
    for (int at = begin;;) {
      await();
      take(at - begin);
      at += kReadColumns;
      if (at >= end) break;
      ask(at);
    }
  }

  __device__ __forceinline__ void finish() {
    const int row = block_.lane / kLanesPerRow;
    if (!kSquares || block_.lane % kLanesPerRow != 0 || row >= block_.rows) return;
    block_.squares()[block_.warp * kMaxRows + row] = squares_;
  }

 private:
  using T = typename W::Activation;
  static constexpr int kLanesPerRow = 32 / kMaxRows;

  __device__ __forceinline__ void load() {
    const Word* from = from_.words + column_ / 2;
#pragma unroll
    for (int row = 0; row < kMaxRows; ++row) {
      words_[row][0] = words_[row][1] = make_word(0, from_.tag);
      if (row < block_.rows && column_ < from_.width) {
        load_two_words(from, words_[row][0], words_[row][1]);
      }
      from += from_.width / 2;
    }
  }

  __device__ __forceinline__ void await() {
    while (true) {
      bool complete = true;
#pragma unroll
      for (const auto& of_row : words_) {
        complete = complete && tag_of(of_row[0]) == from_.tag && tag_of(of_row[1]) == from_.tag;
      }
      if (!__any_sync(0xffffffffu, !complete)) return;
      load();
    }
  }

  // Of the slot from column `slot_column` of the part on.
  __device__ __forceinline__ void take(int slot_column) {
    const bool exists = column_ < from_.width;
    if (!__any_sync(0xffffffffu, exists)) return;
    if constexpr (kStores) {
#pragma unroll
      for (int row = 0; row < kMaxRows; ++row) {
        if (row >= block_.rows) break;
        const uint32_t pairs[2] = {payload_of(words_[row][0]), payload_of(words_[row][1])};
        store_four<W>(block_, row, slot_column + kColumnsPerThread * block_.thread, exists, pairs,
                      norm_, from_.width, [&] { return weight_; });
      }
    }
    if constexpr (kSquares) {
      float squares[kMaxRows];  // 0 where there is no such row
#pragma unroll
      for (int row = 0; row < kMaxRows; ++row) {
        const uint32_t pairs[2] = {payload_of(words_[row][0]), payload_of(words_[row][1])};
        squares[row] = square_of<T>(pairs);
      }
      squares_ += warp_sums(squares, block_.lane);
    }
  }

  const BlockState& block_;
  const Rows& from_;
  const NormStep& norm_;
  int column_ = 0;  // of the row, this thread's first
  Word words_[kMaxRows][2];
  float4 weight_;
  float squares_ = 0;  // of row lane / kLanesPerRow
};

template <typename W, bool kSquares, bool kStores>
using ActivationReader = std::conditional_t<W::kReadsAhead, AheadReader<W, kSquares, kStores>,
                                            RowReader<W, kSquares, kStores>>;

// Of all rows, for norm_factor().
template <typename W>
__device__ __forceinline__ void read_squares(const BlockState& block, const Rows& from) {
  const NormStep nothing = {nullptr, false, 0};
  ActivationReader<W, true, false> reader(block, from, nothing);
  reader.ask(0);
  reader.read(0, from.width);
  reader.finish();
  block.synchronize();
}

}  // namespace quire::ops::cuda::step
