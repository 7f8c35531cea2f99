#pragma once
// Which adapters a step's rows have, what these add to a layer, and how their matrices are cut
// (adapters.cuh).
#include <algorithm>

#include "ops/cuda/decoder_step/block.cuh"
#include "ops/cuda/decoder_step/slot.cuh"
#include "ops/cuda/ptx/copy_async.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

namespace quire::ops::cuda::step {

// The adapters of a step's rows; in shared memory.
struct StepAdapters {
  int count;
  int slots[kMaxRows];
  uint32_t rows[kMaxRows];  // of an adapter: a bit for each
  int of_row[kMaxRows];     // -1: it has none
};

// Of a row, the sums of a matrix's ranks.
inline constexpr int kRowRanks = kMaxLoraParts * kMaxDecoderStepRank;
inline constexpr int kEntryWords = sizeof(CudaLoraLayer) / 16;
// Pieces of A are as small as this allows, to be shared among many blocks: pieces of a matrix, and
// of a group of ranks.
inline constexpr int kSpreadPieces = 128;
inline constexpr int kMostPiecesOfGroup = 32;
inline constexpr int kLeastPieceShift = 8;  // 2 to this are a piece's columns
inline constexpr int kMostPieceShift = 10;
// Runs of 32 columns that a warp has of a piece, at most.
inline constexpr int kMostRunsOfWarp = (1 << kMostPieceShift) / kRunColumns / kWarps;
// Ranks that a thread multiplies at a time.
inline constexpr int kRankStep = 8;

__device__ __forceinline__ StepAdapters& step_adapters(const SharedLayout& layout) {
  return *in_shared<StepAdapters>(layout.lora_at);
}
// Of all layers: CudaDecoderLora::places.
__device__ __forceinline__ int32_t* matrix_places(const SharedLayout& layout) {
  return in_shared<int32_t>(layout.lora_at + static_cast<int>(sizeof(StepAdapters)));
}
// What each adapter adds to a layer: [adapter][kNumDecoderMatrices]. This layer's and the next
// one's, of the computing threads, and then those of the filling warp, which may be layers ahead.
__device__ __forceinline__ CudaLoraLayer* layer_entries(const CudaDecoderStep& args,
                                                        const SharedLayout& layout, int layer,
                                                        bool of_filler) {
  const int buffer = layer % 2 + (of_filler ? 2 : 0);
  return in_shared<CudaLoraLayer>(layout.lora_entries_at) +
         buffer * static_cast<int>(args.rows) * kNumDecoderMatrices;
}

// By all threads of the block, before a barrier.
__device__ __forceinline__ void list_adapters(const CudaDecoderStep& args,
                                              const SharedLayout& layout, int thread) {
  int32_t* const places = matrix_places(layout);
  for (int i = thread; i < args.num_layers * kNumDecoderMatrices; i += kThreads) {
    places[i] = args.lora.places[i];
  }
  if (thread >= 32) return;
  StepAdapters& all = step_adapters(layout);
  const CudaLoraRows& rows = args.lora.rows;
  LoraItem item = {-1, 0, 0, 0};
  if (thread < rows.max_items) item = rows.items[thread];
  const bool has_adapter = thread < *rows.num_items && item.slot >= 0;
  const uint32_t others = __ballot_sync(0xffffffffu, has_adapter);
  if (thread < kMaxRows) all.of_row[thread] = -1;
  if (thread == 0) all.count = __popc(others);
  __syncwarp();
  if (!has_adapter) return;
  const int index = __popc(others & ((1u << thread) - 1));
  uint32_t bits = 0;
  for (int i = 0; i < item.count; ++i) {
    const int row = rows.rows[item.first + i];
    bits |= 1u << row;
    all.of_row[row] = index;
  }
  all.slots[index] = item.slot;
  all.rows[index] = bits;
}

// Starts to copy a layer's entries, by so many threads.
__device__ __forceinline__ void fetch_entries(const CudaDecoderStep& args,
                                              const SharedLayout& layout, int layer, bool of_filler,
                                              int thread, int num_threads) {
  if (layer >= args.num_layers) return;
  const StepAdapters& all = step_adapters(layout);
  const int32_t* const places = matrix_places(layout) + layer * kNumDecoderMatrices;
  const uint32_t to = shared_address(layer_entries(args, layout, layer, of_filler));
  const int count = all.count * kNumDecoderMatrices * kEntryWords;
  for (int i = thread; i < count; i += num_threads) {
    const int entry = i / kEntryWords;
    const int slot = all.slots[entry / kNumDecoderMatrices];
    const CudaLoraLayer* const from =
        args.lora.table + slot * args.lora.slot_stride + places[entry % kNumDecoderMatrices];
    copy_async(to + 16 * i, reinterpret_cast<const uint4*>(from) + i % kEntryWords, true);
  }
}

// n / divisor for n < 2^16 and divisor < 2^8.
__device__ __forceinline__ int divided(int n, int divisor) {
  return static_cast<int>(__fdividef(static_cast<float>(n) + 0.5f, static_cast<float>(divisor)));
}

// How an adapter's A [ranks, k] is cut: groups of 8 ranks, by so many columns.
struct Pieces {
  int groups;
  int columns;
  int per_group;

  __host__ __device__ Pieces(int ranks, int k) : groups(ranks / kGroupRows) {
    int shift = kLeastPieceShift;
    per_group = ((k - 1) >> shift) + 1;
    while (shift < kMostPieceShift && (per_group > kMostPiecesOfGroup || count() > kSpreadPieces)) {
      ++shift;
      per_group = ((k - 1) >> shift) + 1;
    }
    columns = 1 << shift;
  }
  __host__ __device__ int count() const { return groups * per_group; }
};

// Words of the exchange of a matrix's sums.
inline int64_t most_piece_words(int64_t k) {
  const int64_t of_whole_slots = kRowRanks / kGroupRows * (((k - 1) >> kMostPieceShift) + 1);
  return std::max<int64_t>(kSpreadPieces, of_whole_slots) * kMaxRows * kGroupRows;
}

}  // namespace quire::ops::cuda::step
