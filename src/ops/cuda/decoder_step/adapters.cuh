#pragma once
// Adapters in the decoder step's kernel: what they add to the products of a layer's matrices, of
// the rows that have one (ops/cuda/lora_kernels.h says how they lie).
//
// A product begins with the block's pieces of A, if it has any: 8 ranks by some columns, which come
// through the ring before the weights. A warp multiplies a piece with all rows and publishes the
// sums. While the weights' products go on, all blocks' sums arrive. Before the product's last
// columns the warps add them up in shared memory, in float32, and multiply the totals with the rows
// of B for the block's outputs, which come through the ring as well. What that gives is added to an
// output's sums before anything else becomes of them.
//
// A word of the pieces' sums may be written again when all of its readers have read it. Only blocks
// with outputs of a product write and read its sums, and they publish outputs after they have read
// them. Who writes those of the same matrix in the next layer has read an input of the product,
// which is, through the chain of exchanges (decoder_step_cuda.cu), later than all blocks' outputs
// of this layer's.
#include "ops/cuda/decoder_step/kernel.cuh"
#include "ops/cuda/ptx/copy_async.cuh"

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
inline constexpr int kLeastPieceColumns = 256;

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

// How an adapter's A [ranks, k] is cut: groups of 8 ranks, by so many columns.
struct Pieces {
  int groups;
  int columns;
  int per_group;

  __device__ Pieces(int ranks, int k) : groups(ranks / kGroupRows), columns(kLeastPieceColumns) {
    const auto cut = [&] { per_group = (k + columns - 1) / columns; };
    cut();
    while (columns < kSlotDataBytes / 2 &&
           (per_group > kMostPiecesOfGroup || count() > kSpreadPieces)) {
      columns *= 2;
      cut();
    }
  }
  __device__ int count() const { return groups * per_group; }
};

// Words of the exchange of a matrix's sums.
inline int64_t most_piece_words(int64_t k) {
  const int64_t of_whole_slots =
      kRowRanks / kGroupRows * ((k + kSlotDataBytes / 2 - 1) / (kSlotDataBytes / 2));
  return std::max<int64_t>(kSpreadPieces, of_whole_slots) * kMaxRows * kGroupRows;
}

// Rows of B for some of a block's outputs, part by part, as they lie in a slot of the ring.
struct SlotRows {
  int output[kMaxLoraParts];  // the part's first
  int at[kMaxLoraParts + 1];  // in bytes; of all parts at the end
};
// One of a part's numbers, without an array in memory.
__device__ __forceinline__ int of_part(const int* numbers, int part) {
  return part == 0 ? numbers[0] : part == 1 ? numbers[1] : numbers[2];
}

// Of one matrix of a layer, what adapters add to its products.
class MatrixAdapters {
 public:
  static constexpr bool kAny = true;

  // By all threads of the block, before a barrier.
  static __device__ __forceinline__ void begin(const CudaDecoderStep& args,
                                               const SharedLayout& layout, int thread) {
    list_adapters(args, layout, thread);
  }
  // Starts to copy what the constructor wants of a layer, by so many threads.
  static __device__ __forceinline__ void fetch(const CudaDecoderStep& args,
                                               const SharedLayout& layout, int layer,
                                               bool of_filler, int thread, int num_threads) {
    fetch_entries(args, layout, layer, of_filler, thread, num_threads);
  }

  // `share`: this block's. `of_filler`: for the warp that fills the ring, which needs no tag.
  __device__ __forceinline__ MatrixAdapters(const CudaDecoderStep& args, const Exchanges& exchanges,
                                            const SharedLayout& layout, int layer, int matrix,
                                            const Share& share, bool of_filler, uint32_t tag)
      : all_(step_adapters(layout)),
        entries_(layer_entries(args, layout, layer, of_filler) + matrix),
        sums_(exchanges.lora + matrix * exchanges.lora_words),
        totals_(in_shared<float>(layout.lora_sums_at)),
        added_(in_shared<float>(layout.lora_added_at)),
        tag_(tag) {
    if (matrix == kQkvMatrix) {
      second_part_ = args.num_heads * args.head_dim;
      third_part_ = second_part_ + args.num_kv_heads * args.head_dim;
    }
    const int outputs = matrix == kQkvMatrix      ? static_cast<int>(qkv_width(args))
                        : matrix == kGateUpMatrix ? static_cast<int>(args.inner)
                                                  : static_cast<int>(args.hidden);
    // Where there are fewer pairs of outputs than blocks, a block has one or none.
    const int pairs = outputs / 2;
    const int blocks = static_cast<int>(gridDim.x);
    num_blocks_ = min(pairs, blocks);
    block_ = pairs < blocks ? share.begin / 2 : static_cast<int>(blockIdx.x);
  }

  // The weights of a product, with what adapters have for it, in the order in which multiply() of
  // product.cuh takes them.
  template <typename W>
  __device__ __forceinline__ void stream(const void* weight, const Share& share, int x_columns,
                                         Filler& filler) const {
    if (share.begin == share.end) return;
#pragma unroll 1
    for (int begin = 0; begin < share.k; begin += x_columns) {
      const int end = min(begin + x_columns, share.k);
      stream_a(share.k, begin, end, filler);
      const int first = begin / kSlotColumns<W>;
      const int last = (end + kSlotColumns<W> - 1) / kSlotColumns<W>;
      const int before = end == share.k ? columns_before(first, last) : last;
      filler.stream_columns<W>(weight, share, first, before);
      if (end < share.k) continue;
      stream_b<W>(share, filler);
      filler.stream_columns<W>(weight, share, before, last);
    }
  }

  // Column slots of a product's last part of activations: from this one on they come after B.
  static __device__ __forceinline__ int columns_before(int begin, int end) {
    return end - begin > 1 ? end - 1 : end;
  }

  // Brings factors and biases of the block's outputs into the L2 cache, long before they are read.
  __device__ __forceinline__ void prefetch_vectors(const Share& share, const Filler& filler) const {
    for (int i = 0; i < all_.count; ++i) {
      const int part = filler.lane() / 2;
      if (part >= kMaxLoraParts) return;
      const CudaLoraLayer& of = entry(i);
      const float* const vector = filler.lane() % 2 == 0 ? of.factor[part] : of.added[part];
      const int begin = max(share.begin, share.gated() ? 0 : part_begin(part));
      const int end = min(share.end, share.gated() ? share.end : part_end(part));
      if (vector == nullptr || begin >= end) continue;
      const int first = (begin - (share.gated() ? 0 : part_begin(part))) / 4 * 4;
      const int words = (end - begin) / 4;  // whole ones of 16 bytes
      if (words > 0) filler.prefetch(vector + first, static_cast<uint32_t>(16 * words));
    }
  }

  // The block's pieces with columns [begin, end) of the activations that are in shared memory.
  template <typename T>
  __device__ __forceinline__ void publish_sums(BlockState& block, int k, int begin, int end) const {
    int turn = 0;
    for_each_piece(k, begin, end, [&](int i, const Pieces& pieces, int, int place, int column) {
      const uint32_t weights = block.wait_slot();
      if (turn++ % kWarps == block.warp) {
        const uint32_t x =
            shared_address(in_shared<unsigned char>(block.layout.x_at)) + 2 * (column - begin);
        const int columns = min(pieces.columns, k - column);
        publish_piece(block, i, place,
                      multiply_dense_runs<T>(block, weights, x, 0, columns / kRunColumns));
      }
      block.release_slot();
    });
  }

  // Adds up all blocks' sums, for expand() after a barrier.
  template <typename W>
  __device__ __forceinline__ void collect_sums(const BlockState& block, const Share& share) const {
    const int num_outputs = share.num_groups<W>() * kGroupRows * block.rows;
    for (int i = block.thread; i < num_outputs; i += kComputeThreads) added_[i] = 0;
#pragma unroll 1
    for (int i = 0; i < all_.count; ++i) {
      const Pieces pieces(entry(i).ranks, share.k);
#pragma unroll 1
      for (uint32_t rows = all_.rows[i]; rows != 0; rows &= rows - 1) {
        const int row = __ffs(static_cast<int>(rows)) - 1;
#pragma unroll 1
        for (int group = (block.warp + row) % kWarps; group < pieces.groups; group += kWarps) {
          const float total = total_of_group(block, pieces, group, row);
          if (block.lane < kGroupRows) {
            totals_[row * kRowRanks + group * kGroupRows + block.lane] = total;
          }
        }
      }
    }
  }

  // What the adapters add to the block's outputs, for added().
  template <typename W>
  __device__ __forceinline__ void expand(BlockState& block, const Share& share) const {
    const int num_outputs = share.num_groups<W>() * kGroupRows * block.rows;
    for_each_slot<W>(share, [&](int i, int first, int last, const SlotRows& rows) {
      const CudaLoraLayer& of = entry(i);
      const uint32_t slot = block.wait_slot();
#pragma unroll 1
      for (int index = block.thread; index < num_outputs; index += kComputeThreads) {
        const Result at = result_of<W>(block, index);
        const int side = share.gated() ? at.group % 2 : 0;
        const int group = share.gated() ? at.group / 2 : at.group;
        const int feature = share.begin + kGroupRows * group + at.feature;
        if (all_.of_row[at.row] != i || feature < first || feature >= last) continue;
        const int part = share.gated() ? side : part_of(feature);
        const int rank = of.rank[part];
        if (rank == 0) continue;
        const int output = share.gated() ? feature : feature - part_begin(part);
        const uint32_t b =
            slot + static_cast<uint32_t>(of_part(rows.at, part) +
                                         2 * rank * (output - of_part(rows.output, part)));
        added_[index] = of.scale[part] * dot(totals_ + at.row * kRowRanks + of.first_rank[part], b,
                                             rank, at.feature);
      }
      block.release_slot();
    });
  }

  // What comes to the sums of an output, which `group` counts as the share does.
  __device__ __forceinline__ float added(const BlockState& block, int group, int row,
                                         int feature_of_group) const {
    return added_[(group * block.rows + row) * kGroupRows + feature_of_group];
  }
  // An output: what its adapter makes of the sums and the base's bias. `side`: of a gated share.
  __device__ __forceinline__ float finished(const Share& share, int row, int side, int feature,
                                            float value, float bias) const {
    const int i = all_.of_row[row];
    if (i < 0) return value + bias;
    const CudaLoraLayer& of = entry(i);
    const int part = share.gated() ? side : part_of(feature);
    const int output = share.gated() ? feature : feature - part_begin(part);
    if (of.factor[part] != nullptr) value *= of.factor[part][output];
    value += bias;
    return of.added[part] == nullptr ? value : value + of.added[part][output];
  }

 private:
  // Fills the ring with what publish_sums() takes.
  __device__ __forceinline__ void stream_a(int k, int begin, int end, Filler& filler) const {
    for_each_piece(k, begin, end, [&](int i, const Pieces& pieces, int group, int, int column) {
      const int64_t row = group * kGroupRows + filler.lane();
      const auto* from = static_cast<const char*>(entry(i).a) + 2 * (row * k + column);
      filler.fill(from, 0, kGroupRows, 2 * min(pieces.columns, k - column));
    });
  }
  // And with what expand() takes.
  template <typename W>
  __device__ __forceinline__ void stream_b(const Share& share, Filler& filler) const {
    for_each_slot<W>(share, [&](int i, int, int, const SlotRows& rows) {
      const CudaLoraLayer& of = entry(i);
      const int part = min(filler.lane(), kMaxLoraParts - 1);
      const int at = of_part(rows.at, part);
      const int bytes = filler.lane() < kMaxLoraParts ? of_part(rows.at + 1, part) - at : 0;
      const auto* from = static_cast<const char*>(of.b[part]) +
                         int64_t{2} * of_part(rows.output, part) * of.rank[part];
      filler.fill_pieces(from, static_cast<uint32_t>(at), bytes, rows.at[kMaxLoraParts]);
    });
  }

  __device__ __forceinline__ const CudaLoraLayer& entry(int i) const {
    return entries_[i * kNumDecoderMatrices];
  }
  __device__ __forceinline__ int part_of(int feature) const {
    return feature >= third_part_ ? 2 : feature >= second_part_ ? 1 : 0;
  }
  __device__ __forceinline__ int part_begin(int part) const {
    return part == 0 ? 0 : part == 1 ? second_part_ : third_part_;
  }
  __device__ __forceinline__ int part_end(int part) const {
    return part == 0 ? second_part_ : part == 1 ? third_part_ : kNoPart;
  }

  // Calls body(adapter, pieces, group, place among the adapter's pieces, first column) for the
  // block's pieces that begin in these columns. They are dealt out from the last block on:
  // attention's units are from the first.
  template <typename Body>
  __device__ __forceinline__ void for_each_piece(int k, int begin, int end,
                                                 const Body& body) const {
    const int blocks = num_blocks_;
    int first = blocks - 1 - block_;
#pragma unroll 1
    for (int i = 0; i < all_.count; ++i) {
      const Pieces pieces(entry(i).ranks, k);
#pragma unroll 1
      for (int place = first; place < pieces.count(); place += blocks) {
        const int of_group = place / pieces.groups;
        const int column = of_group * pieces.columns;
        if (column < begin || column >= end) continue;
        body(i, pieces, place - of_group * pieces.groups, place, column);
      }
      first -= pieces.count();
      while (first < 0) first += blocks;
    }
  }

  // Calls body(adapter, outputs [first, last), what of B a slot has of them) for the slots that B's
  // rows for the share take.
  template <typename W, typename Body>
  __device__ __forceinline__ void for_each_slot(const Share& share, const Body& body) const {
#pragma unroll 1
    for (int i = 0; i < all_.count; ++i) {
      const CudaLoraLayer& of = entry(i);
      const int ranks =
          share.gated() ? of.rank[0] + of.rank[1] : max(of.rank[0], max(of.rank[1], of.rank[2]));
      if (ranks == 0) continue;
      const int of_slot = W::kSlotBytes / (2 * ranks);
#pragma unroll 1
      for (int first = share.begin; first < share.end; first += of_slot) {
        const int last = min(first + of_slot, share.end);
        SlotRows rows;
        rows.at[0] = 0;
#pragma unroll
        for (int part = 0; part < kMaxLoraParts; ++part) {
          const int begin = share.gated() ? first : max(first, part_begin(part));
          const int end = share.gated() ? (part < 2 ? last : first) : min(last, part_end(part));
          rows.output[part] = share.gated() ? first : begin - part_begin(part);
          rows.at[part + 1] = rows.at[part] + 2 * of.rank[part] * max(end - begin, 0);
        }
        if (rows.at[kMaxLoraParts] > 0) body(i, first, last, rows);
      }
    }
  }

  __device__ __forceinline__ Word* words_of(int place, int row) const {
    return sums_ + (place * kMaxRows + row) * kGroupRows;
  }

  // A lane has the sums of two ranks for one row.
  __device__ __forceinline__ void publish_piece(const BlockState& block, int adapter, int place,
                                                float2 sums) const {
    const int row = block.lane / 4;
    if ((all_.rows[adapter] >> row & 1) == 0) return;
    Word* const to = words_of(place, row) + 2 * (block.lane % 4);
    publish(to, __float_as_uint(sums.x), tag_);
    publish(to + 1, __float_as_uint(sums.y), tag_);
  }

  // Of rank lane % 8 of the group: eight lanes have every fourth piece each.
  __device__ __forceinline__ float total_of_group(const BlockState& block, const Pieces& pieces,
                                                  int group, int row) const {
    constexpr int kOctets = 4;
    constexpr int kAtOnce = kMostPiecesOfGroup / kOctets;
    float total = 0;
#pragma unroll 1
    for (int begin = block.lane / kGroupRows; __any_sync(0xffffffffu, begin < pieces.per_group);
         begin += kOctets * kAtOnce) {
      Word words[kAtOnce];
      bool complete;
      do {
        complete = true;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int piece = begin + kOctets * i;
          words[i] = make_word(0, tag_);
          if (piece < pieces.per_group) {
            words[i] =
                load_word(words_of(piece * pieces.groups + group, row) + block.lane % kGroupRows);
          }
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) complete = complete && tag_of(words[i]) == tag_;
      } while (__any_sync(0xffffffffu, !complete));
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) total += __uint_as_float(payload_of(words[i]));
    }
    total += __shfl_xor_sync(0xffffffffu, total, 8);
    return total + __shfl_xor_sync(0xffffffffu, total, 16);
  }

  // Of the sums of so many ranks and a row of B in bfloat16. Features begin at different ranks, so
  // that lanes read from different banks.
  static __device__ __forceinline__ float dot(const float* t, uint32_t b, int ranks, int feature) {
    constexpr int kAtOnce = 8;
    const int steps = ranks / kAtOnce;
    int step = feature * steps / kGroupRows;
    float sums[2] = {};
#pragma unroll 2
    for (int i = 0; i < steps; ++i) {
      const uint4 words = load_chunk(b + 16 * step);
      const float4 first = reinterpret_cast<const float4*>(t)[2 * step];
      const float4 second = reinterpret_cast<const float4*>(t)[2 * step + 1];
      const float2 b0 = Elements<__nv_bfloat16>::unpack(words.x);
      const float2 b1 = Elements<__nv_bfloat16>::unpack(words.y);
      const float2 b2 = Elements<__nv_bfloat16>::unpack(words.z);
      const float2 b3 = Elements<__nv_bfloat16>::unpack(words.w);
      sums[0] += first.x * b0.x + first.y * b0.y + first.z * b1.x + first.w * b1.y;
      sums[1] += second.x * b2.x + second.y * b2.y + second.z * b3.x + second.w * b3.y;
      if (++step == steps) step = 0;
    }
    return sums[0] + sums[1];
  }

  static constexpr int kNoPart = 0x7fffffff;

  const StepAdapters& all_;
  const CudaLoraLayer* entries_;
  Word* sums_;
  float* totals_;  // [kMaxRows][kRowRanks]
  float* added_;   // [groups of the share][rows][kGroupRows]
  uint32_t tag_;
  int num_blocks_;  // that have outputs of the product, and which of them this is
  int block_;
  int second_part_ = kNoPart;  // where the second part's outputs begin, and the third's
  int third_part_ = kNoPart;
};

}  // namespace quire::ops::cuda::step
