#pragma once
// Adapters in the decoder step's kernel: what they add to the products of a layer's matrices, of
// the rows that have one (ops/cuda/lora_kernels.h says how they lie).
//
// A product begins with the block's piece of A, if it has one: 8 ranks by some columns. The warps
// multiply some columns each with all rows, one of them publishes the sums, and the others go on.
// While the weights' products take their time, all blocks' sums arrive. Before the product's last
// columns the warps add them up in shared memory, in float32, and multiply the totals with the rows
// of B for the block's outputs. What that gives is added to an output's sums before anything else
// becomes of them.
//
// A and B do not go through the ring, whose slots they would not fill: the ring has to be full of
// weights while a product waits for its inputs. The filling warp asks for them to be in the L2
// cache, and before a thread waits for the inputs it starts to copy its own numbers of both to a
// place of its own in shared memory.
//
// A word of the pieces' sums may be written again when all of its readers have read it. Only blocks
// with outputs of a product write and read its sums, and they publish outputs after they have read
// them. Who writes those of the same matrix in the next layer has read an input of the product,
// which is, through the chain of exchanges (decoder_step_cuda.cu), later than all blocks' outputs
// of this layer's.
#include "ops/cuda/decoder_step/adapter_entries.cuh"
#include "ops/cuda/decoder_step/layers.cuh"

namespace quire::ops::cuda::step {

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
        of_warps_(in_shared<float>(layout.lora_warps_at)),
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

  // Brings into the L2 cache what the block reads of a product's adapters.
  __device__ __forceinline__ void prefetch(const Share& share, const Filler& filler) const {
    if (share.begin == share.end) return;
    Walk walk = first_place();
    Piece piece;
    while (next_piece(walk, share.k, 0, share.k, piece)) {
      if (filler.lane() >= kGroupRows) continue;
      const int64_t rank = piece.group * kGroupRows + filler.lane();
      filler.prefetch(a_of(piece) + rank * share.k + piece.column,
                      static_cast<uint32_t>(2 * piece.columns));
    }
#pragma unroll 1
    for (int i = 0; i < all_.count; ++i) {
      const int part = filler.lane() / 4;
      if (part >= kMaxLoraParts || (share.gated() && part == 2)) continue;
      const CudaLoraLayer& of = entry(i);
      const int part_first = share.gated() ? 0 : part_begin(part);
      const int begin = max(share.begin, part_first) - part_first;
      const int end = min(share.end, share.gated() ? share.end : part_end(part)) - part_first;
      if (begin >= end) continue;
      const auto vector = [&](const float* values) {
        const int words = (end - begin) / 4;  // whole ones of 16 bytes
        if (values != nullptr && words > 0) {
          filler.prefetch(values + begin / 4 * 4, static_cast<uint32_t>(16 * words));
        }
      };
      switch (filler.lane() % 4) {
        case 0:
          if (of.rank[part] > 0) {
            filler.prefetch(b_of(of, part, begin),
                            static_cast<uint32_t>(2 * of.rank[part] * (end - begin)));
          }
          break;
        case 1:
          vector(of.factor[part]);
          break;
        case 2:
          vector(of.added[part]);
          break;
        default:
          break;
      }
    }
  }

  // Starts to copy the thread's numbers of the block's first piece with columns [begin, end), and
  // before a product's first columns those of B. A wait for the inputs may follow.
  template <typename W>
  __device__ __forceinline__ void load(const BlockState& block, const Share& share, int begin,
                                       int end) const {
    Walk walk = first_place();
    Piece piece;
    if (next_piece(walk, share.k, begin, end, piece)) load_piece(block, share.k, piece);
    commit_copies();
    if (begin > 0) return;
    const int num_outputs = share.num_groups<W>() * kGroupRows * block.rows;
#pragma unroll 1
    for (int i = 0; i < block.layout.lora_b_outputs; ++i) {
      load_b(block, product_of<W>(block, share, block.thread + i * kComputeThreads, num_outputs),
             i);
    }
  }

  // The sums of the block's pieces with columns [begin, end), those of the activations that are in
  // shared memory.
  __device__ __forceinline__ void publish_sums(const BlockState& block, const Share& share,
                                               int begin, int end) const {
    Walk walk = first_place();
    Piece piece;
    bool is_first = true;
#pragma unroll 1
    while (next_piece(walk, share.k, begin, end, piece)) {
      if (is_first) {
        wait_for_copies<0>();
      } else {
        load_piece(block, share.k, piece);
        wait_for_all_copies();
        block.synchronize();  // the warps' sums of the piece before have been read
      }
      is_first = false;
      multiply_piece(block, piece, piece.column - begin);
      if (block.warp > 0) {
        named_barrier_arrive(kPieceBarrier, kComputeThreads);
        continue;
      }
      named_barrier_wait(kPieceBarrier, kComputeThreads);
      publish_piece(block, piece);
    }
  }

  // Column slots of a product's last part of activations: those from this one on come after
  // add_products(). By then the sums have come, and what the ring has filled meanwhile gives the
  // time back.
  static __device__ __forceinline__ int columns_before(int begin, int end) {
    return (begin + end + 1) / 2;
  }

  // What the adapters add to the block's outputs, for added() after a barrier.
  template <typename W>
  __device__ __forceinline__ void add_products(const BlockState& block, const Share& share) const {
    const int num_outputs = share.num_groups<W>() * kGroupRows * block.rows;
    collect_sums(block, share.k);
    wait_for_all_copies();
    block.synchronize();
#pragma unroll 1
    for (int i = 0; i * kComputeThreads + block.thread < num_outputs; ++i) {
      const int index = i * kComputeThreads + block.thread;
      const Product product = product_of<W>(block, share, index, num_outputs);
      added_[index] = i < block.layout.lora_b_outputs
                          ? sum_of(product, [&](int step) { return *place_of_b(block, step, i); })
                          : sum_of(product, [&](int step) { return product.b[step]; });
    }
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
  using Number = __nv_bfloat16;

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

  // A piece of A that the block has.
  struct Piece {
    int adapter;
    int place;  // among the adapter's
    int group;
    int column;
    int columns;
  };
  // Where to look for the next one. They are dealt out from the last block on: attention's units
  // are from the first.
  struct Walk {
    int adapter;
    int place;
  };
  __device__ __forceinline__ Walk first_place() const {
    return {0, num_blocks_ - 1 - block_};
  }
  // The next one that begins in columns [begin, end); false: there is none.
  __device__ __forceinline__ bool next_piece(Walk& walk, int k, int begin, int end,
                                             Piece& piece) const {
#pragma unroll 1
    for (; walk.adapter < all_.count; ++walk.adapter) {
      const Pieces pieces(entry(walk.adapter).ranks, k);
#pragma unroll 1
      while (walk.place < pieces.count()) {
        const int place = walk.place;
        walk.place += num_blocks_;
        const int of_group = divided(place, pieces.groups);
        const int column = of_group * pieces.columns;
        if (column < begin || column >= end) continue;
        piece = {walk.adapter, place, place - of_group * pieces.groups, column,
                 min(pieces.columns, k - column)};
        return true;
      }
      walk.place -= pieces.count();
    }
    return false;
  }
  __device__ __forceinline__ const Number* a_of(const Piece& piece) const {
    return static_cast<const Number*>(entry(piece.adapter).a);
  }

  // A thread's word of a run of columns. Each eighth run is a warp's; lanes have what they have of
  // a slot of weights (slot.cuh).
  static __device__ __forceinline__ uint4* place_of_a(const BlockState& block, int i) {
    return in_shared<uint4>(block.layout.lora_a_at) + i * kComputeThreads + block.thread;
  }
  __device__ __forceinline__ void load_piece(const BlockState& block, int k,
                                             const Piece& piece) const {
    const int64_t rank = piece.group * kGroupRows + block.lane / 4;
    const Number* const from = a_of(piece) + rank * k + piece.column + 8 * (block.lane % 4);
#pragma unroll
    for (int i = 0; i < kMostRunsOfWarp; ++i) {
      const int column = kRunColumns * (block.warp + kWarps * i);
      if (column < piece.columns) {
        copy_async(shared_address(place_of_a(block, i)), from + column, true);
      }
    }
  }
  // The warp's sums for the piece whose activations begin with this column in shared memory.
  __device__ __forceinline__ void multiply_piece(const BlockState& block, const Piece& piece,
                                                 int column) const {
    const int row = block.lane / 4;
    const uint32_t x = shared_address(in_shared<unsigned char>(block.layout.x_at)) +
                       row * block.layout.x_stride + 2 * column + 16 * (block.lane % 4);
    float sums[2][4] = {};
#pragma unroll
    for (int i = 0; i < kMostRunsOfWarp; ++i) {
      const int run = block.warp + kWarps * i;
      if (kRunColumns * run >= piece.columns) break;
      const uint4 w = *place_of_a(block, i);
      uint4 a = make_uint4(0, 0, 0, 0);
      if (row < block.rows) a = load_chunk(x + 2 * kRunColumns * run);
      multiply_add<Number>(sums[0], {a.x, a.y, a.z, a.w}, w.x, w.y);
      multiply_add<Number>(sums[1], {a.x, a.y, a.z, a.w}, w.z, w.w);
    }
    if (row >= block.rows) return;
    float* const to = of_warps_ + (block.warp * block.rows + row) * kGroupRows;
    *reinterpret_cast<float2*>(to + 2 * (block.lane % 4)) =
        make_float2(sums[0][0] + sums[1][2], sums[0][1] + sums[1][3]);
  }
  // By one warp, when all have their sums.
  __device__ __forceinline__ void publish_piece(const BlockState& block, const Piece& piece) const {
#pragma unroll 1
    for (int i = block.lane; i < block.rows * kGroupRows; i += 32) {
      if ((all_.rows[piece.adapter] >> (i / kGroupRows) & 1) == 0) continue;
      float total = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        total += of_warps_[warp * block.rows * kGroupRows + i];
      }
      publish(words_of(piece.place, i / kGroupRows) + i % kGroupRows, __float_as_uint(total), tag_);
    }
    __syncwarp();
  }

  __device__ __forceinline__ Word* words_of(int place, int row) const {
    return sums_ + (place * kMaxRows + row) * kGroupRows;
  }

  // Adds up all blocks' sums, of all rows with an adapter.
  __device__ __forceinline__ void collect_sums(const BlockState& block, int k) const {
#pragma unroll 1
    for (int i = 0; i < all_.count; ++i) {
      const Pieces pieces(entry(i).ranks, k);
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

  // What an output of a row gets: a row of B times some of the totals.
  struct Product {
    const uint4* b;
    const float* totals;
    int ranks;  // 0: nothing
    float scale;
  };
  template <typename W>
  __device__ __forceinline__ Product product_of(const BlockState& block, const Share& share,
                                                int index, int num_outputs) const {
    if (index >= num_outputs) return {nullptr, nullptr, 0, 0};
    const Result at = result_of<W>(block, index);
    const int group = share.gated() ? at.group / 2 : at.group;
    const int feature = share.begin + kGroupRows * group + at.feature;
    const int i = all_.of_row[at.row];
    if (i < 0 || feature >= share.end) return {nullptr, nullptr, 0, 0};
    const CudaLoraLayer& of = entry(i);
    const int part = share.gated() ? at.group % 2 : part_of(feature);
    const int output = share.gated() ? feature : feature - part_begin(part);
    return {reinterpret_cast<const uint4*>(b_of(of, part, output)),
            totals_ + at.row * kRowRanks + of.first_rank[part], of.rank[part], of.scale[part]};
  }
  static __device__ __forceinline__ const Number* b_of(const CudaLoraLayer& of, int part,
                                                       int output) {
    return static_cast<const Number*>(of.b[part]) + int64_t{output} * of.rank[part];
  }
  // A thread's word of B for 8 ranks of its i-th output.
  static __device__ __forceinline__ uint4* place_of_b(const BlockState& block, int step, int i) {
    return in_shared<uint4>(block.layout.lora_b_at) +
           (i * block.layout.lora_b_steps + step) * kComputeThreads + block.thread;
  }
  static __device__ __forceinline__ void load_b(const BlockState& block, const Product& product,
                                                int i) {
#pragma unroll 1
    for (int step = 0; kRankStep * step < product.ranks; ++step) {
      copy_async(shared_address(place_of_b(block, step, i)), product.b + step, true);
    }
  }
  template <typename LoadB>
  static __device__ __forceinline__ float sum_of(const Product& product, const LoadB& load_b) {
    float sums[2] = {};
#pragma unroll 2
    for (int step = 0; kRankStep * step < product.ranks; ++step) {
      const auto* const t = reinterpret_cast<const float4*>(product.totals + kRankStep * step);
      const float4 first = t[0];
      const float4 second = t[1];
      const uint4 b = load_b(step);
      const float2 b0 = Elements<Number>::unpack(b.x);
      const float2 b1 = Elements<Number>::unpack(b.y);
      const float2 b2 = Elements<Number>::unpack(b.z);
      const float2 b3 = Elements<Number>::unpack(b.w);
      sums[0] += first.x * b0.x + first.y * b0.y + first.z * b1.x + first.w * b1.y;
      sums[1] += second.x * b2.x + second.y * b2.y + second.z * b3.x + second.w * b3.y;
    }
    return product.scale * (sums[0] + sums[1]);
  }

  static constexpr int kNoPart = 0x7fffffff;
  static constexpr int kPieceBarrier = 2;

  const StepAdapters& all_;
  const CudaLoraLayer* entries_;
  Word* sums_;
  float* totals_;    // [kMaxRows][kRowRanks]
  float* added_;     // [groups of the share][rows][kGroupRows]
  float* of_warps_;  // of a piece: [kWarps][rows][kGroupRows]
  uint32_t tag_;
  int num_blocks_;  // that have outputs of the product, and which of them this is
  int block_;
  int second_part_ = kNoPart;  // where the second part's outputs begin, and the third's
  int third_part_ = kNoPart;
};

}  // namespace quire::ops::cuda::step
