#pragma once
// The layers of the decoder step's kernel, in the two views that a block has of them: the weights
// to stream, and the chain of products and exchanges.
//
// The residual is float32 and never leaves its place: a block owns the same features in both
// projections of every layer, an element to a thread.
#include "ops/decoder_step_attention.cuh"

namespace quire::ops::cuda::step {

// This block's of n features, in whole pairs: an exchanged word has two.
__device__ __forceinline__ Share share_of(int64_t n, int64_t k, int64_t second_half = 0) {
  const int64_t pairs = n / 2;
  const int64_t block = blockIdx.x;
  const int64_t blocks = gridDim.x;
  return {static_cast<int>(k), static_cast<int>(2 * (pairs * block / blocks)),
          static_cast<int>(2 * (pairs * (block + 1) / blocks)), static_cast<int>(second_half)};
}

__device__ __forceinline__ int64_t qkv_width(const CudaDecoderStep& args) {
  return static_cast<int64_t>(args.num_heads + 2 * args.num_kv_heads) * args.head_dim;
}
__device__ __forceinline__ int64_t attention_width(const CudaDecoderStep& args) {
  return static_cast<int64_t>(args.num_heads) * args.head_dim;
}

__device__ __forceinline__ BlockShares shares_of(const CudaDecoderStep& args) {
  return {{share_of(qkv_width(args), args.hidden), share_of(args.inner, args.hidden, args.inner)},
          {share_of(args.hidden, attention_width(args)), share_of(args.hidden, args.inner)}};
}

// Brings into the L2 cache what a layer reads outside of the ring, long before: behind the weights
// that are on their way, a read of device memory takes microseconds. The cached keys and values of
// `unit`, or without one the head norms and biases.
__device__ __forceinline__ void prefetch_context(const CudaDecoderStep& args,
                                                 const CudaDecoderLayer& layer,
                                                 const AttentionUnit& unit, const Filler& filler) {
  const int block_size = args.cache.block_size;
  const int row_bytes = 2 * args.head_dim;
  const int end = min(unit.cached_end, unit.begin + kMaxPrefetchTokens);
  for (int at = unit.begin / block_size + filler.lane(); at * block_size < end; at += 32) {
    const int first = max(unit.begin, at * block_size);
    const int last = min(end, (at + 1) * block_size);
    const int64_t cache_block = args.block_tables[unit.row * args.table_width + at];
    const int64_t offset =
        ((cache_block * args.num_kv_heads + unit.kv_head) * block_size + first % block_size) *
        row_bytes;
    const auto bytes = static_cast<uint32_t>((last - first) * row_bytes);
    filler.prefetch(static_cast<const char*>(layer.keys) + offset, bytes);
    filler.prefetch(static_cast<const char*>(layer.values) + offset, bytes);
  }
}

__device__ __forceinline__ void prefetch_vectors(const CudaDecoderStep& args,
                                                 const CudaDecoderLayer& layer,
                                                 const BlockShares& shares, const Filler& filler) {
  const auto features = [&](const float* vector, int begin, int end) {
    const int first = begin / 4 * 4;  // whole words of 16 bytes
    const int words = (end - first) / 4;
    if (vector != nullptr && words > 0) {
      filler.prefetch(vector + first, static_cast<uint32_t>(16 * words));
    }
  };
  const auto share = [&](const float* bias, const Share& of) {
    features(bias, of.begin, of.end);
    if (of.second_half > 0) features(bias, of.begin + of.second_half, of.end + of.second_half);
  };
  switch (filler.lane()) {
    case 0:
      return features(layer.q_norm, 0, args.head_dim);
    case 1:
      return features(layer.k_norm, 0, args.head_dim);
    case 2:
      return share(layer.qkv_bias, shares.normed[0]);
    case 3:
      return share(layer.o_bias, shares.projected[0]);
    case 4:
      return share(layer.gate_up_bias, shares.normed[1]);
    case 5:
      return share(layer.down_bias, shares.projected[1]);
    default:
      return;
  }
}

__device__ __forceinline__ void stream_weights(const CudaDecoderStep& args, const Ring& ring,
                                               int lane) {
  const BlockShares& shares = BlockState::shares();
  const AttentionUnit unit =
      find_unit(args, args.layers[0].sliding_window, static_cast<int>(blockIdx.x));
  Filler filler(ring, lane);
  const int hidden = static_cast<int>(args.hidden);
#pragma unroll 1
  for (int i = 0; i < args.num_layers; ++i) {
    const CudaDecoderLayer layer = args.layers[i];  // all of its pointers at a time
    prefetch_vectors(args, layer, shares, filler);
    if (unit.row >= 0) prefetch_context(args, layer, unit, filler);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const Share& normed = shares.normed[half];
      const bool first = half == 0;
      if (normed.num_tiles() > 0) filler.norm(first ? layer.input_norm : layer.post_norm, hidden);
      filler.tiles_by_row(first ? layer.qkv_weight : layer.gate_up_weight, normed);
      filler.tiles_by_column(first ? layer.o_weight : layer.down_weight, shares.projected[half]);
    }
  }
}

// The columns of the embedding's rows.
template <int kSlots>
__device__ __forceinline__ void read_embedding(const BlockState& block, const CudaDecoderStep& args,
                                               Columns (&x)[kSlots]) {
  const int row = block.lane / 4;
#pragma unroll
  for (int i = 0; i < kSlots * kRunsPerWarp; ++i) {
    const int column = first_column(i / kRunsPerWarp, i % kRunsPerWarp, block.warp, block.lane);
    uint4 bits = make_uint4(0, 0, 0, 0);
    if (row < block.rows && column < args.hidden) {
      const int64_t at = args.token_ids[row] * args.hidden + column;
      bits = static_cast<const uint4*>(args.embedding)[at / 8];
    }
    uint32_t(&to)[4] = x[i / kRunsPerWarp].at[i % kRunsPerWarp];
    to[0] = bits.x;
    to[1] = bits.y;
    to[2] = bits.z;
    to[3] = bits.w;
  }
}

template <int kSlots>
__device__ __forceinline__ void read_residual(const BlockState& block, const Word* exchange,
                                              int hidden, uint32_t tag, Columns (&x)[kSlots]) {
  constexpr int kAtOnce = kSlots < 2 ? kSlots : 2;
#pragma unroll
  for (int first = 0; first < kSlots; first += kAtOnce) {
    read_columns(block, exchange, hidden, first, tag,
                 reinterpret_cast<Columns(&)[kAtOnce]>(x[first]));
  }
}

// The feature of the residual that a thread owns.
struct Owned {
  int row;
  int feature;
  bool exists;
};

__device__ __forceinline__ Owned owned_of(const BlockState& block, const Share& share) {
  const Result at = block.of_tile;
  const int feature = share.begin + at.tile * share.rows_per_tile() + at.feature;
  return {at.row, feature, at.tile < share.num_tiles() && feature < share.end};
}

template <typename T>
__device__ __forceinline__ float embedded(const CudaDecoderStep& args, const Owned& owned) {
  if (!owned.exists) return 0;
  const int64_t at = args.token_ids[owned.row] * args.hidden + owned.feature;
  return static_cast<float>(static_cast<const T*>(args.embedding)[at]);
}

template <typename T, int kSlots>
__device__ __forceinline__ void final_norm(const BlockState& block, const CudaDecoderStep& args,
                                           const Exchanges& exchanges, uint32_t tag,
                                           const Owned& owned, float residual) {
  const int hidden = static_cast<int>(args.hidden);
  Columns x[kSlots];
  read_residual(block, exchanges.after_mlp, hidden, tag, x);
  store_squares<T>(block, x);
  block.synchronize();
  if (!owned.exists) return;
  const float value =
      residual * norm_factor(block, owned.row, hidden, args.eps) * args.final_norm[owned.feature];
  static_cast<T*>(args.out)[owned.row * args.hidden + owned.feature] = static_cast<T>(value);
}

// Tiles that a kernel for rows of up to `slots` column slots has for a block's share of the
// residual.
constexpr int projection_tiles(int slots) {
  return slots <= 2 ? 1 : kMaxProjectionTiles;
}

// Between them, the thread goes on.
__device__ __forceinline__ void copy_word_async(uint64_t* to, const uint64_t* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(hopper::shared_address(to)),
               "l"(from)
               : "memory");
}
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

template <typename T, int kSlots, int kHeadDim>
__device__ __forceinline__ void compute(BlockState& block, const CudaDecoderStep& args,
                                        const Exchanges& exchanges) {
  constexpr int kTiles = projection_tiles(kSlots);
  const int hidden = static_cast<int>(args.hidden);
  const int qkv = static_cast<int>(qkv_width(args));
  const BlockShares& shares = block.shares();
  const uint32_t first_tag = *exchanges.last_tag + 1;
  const Owned owned = owned_of(block, shares.projected[0]);
  float residual = embedded<T>(args, owned);
  constexpr int kLayerWords = kLayerBytes / 8;
  // Two layers are in shared memory: this one, and the next one on its way.
  const auto fetch_layer = [&](int i) {
    if (block.thread >= kLayerWords || i >= args.num_layers) return;
    copy_word_async(reinterpret_cast<uint64_t*>(&block.layer(i)) + block.thread,
                    reinterpret_cast<const uint64_t*>(&args.layers[i]) + block.thread);
  };
  fetch_layer(0);
  int64_t listed_window = 0;
#pragma unroll 1
  for (int i = 0; i < args.num_layers; ++i) {
    wait_for_copies();
    block.synchronize();
    fetch_layer(i + 1);
    const CudaDecoderLayer& layer = block.layer(i);
    const uint32_t tag = first_tag + i;
    if (i == 0 || layer.sliding_window != listed_window) {
      listed_window = layer.sliding_window;
      list_work(block.thread, args, listed_window, block.work());
      block.synchronize();
    }
    // The two halves of a layer share their code: all of it has to stay in the instruction cache.
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const bool first = half == 0;
      Word* const normed_out = first ? exchanges.qkv : exchanges.inner;
      const Share& normed = shares.normed[half];
      if (normed.num_tiles() > 0) {
        Columns x[kSlots];
        if (first && i == 0) {
          read_embedding(block, args, x);
        } else {
          read_residual(block, first ? exchanges.after_mlp : exchanges.after_attention, hidden,
                        first ? tag - 1 : tag, x);
        }
        normed_product<T>(block, normed, x, first ? layer.qkv_bias : layer.gate_up_bias, args.eps,
                          normed_out, first ? qkv : static_cast<int>(args.inner), tag);
      }
      if (first) attention<T, kHeadDim>(block, args, layer, exchanges, tag);
      add_projection<T, kTiles>(
          block, shares.projected[half], first ? exchanges.attention : exchanges.inner,
          first ? layer.o_bias : layer.down_bias,
          first ? exchanges.after_attention : exchanges.after_mlp, hidden, tag, residual);
    }
  }
  if (shares.projected[0].num_tiles() > 0) {
    final_norm<T, kSlots>(block, args, exchanges, first_tag + args.num_layers - 1, owned, residual);
  }
}

// The last block to finish moves the tags on: every block has read them by then.
__device__ __forceinline__ void finish(const CudaDecoderStep& args, const Exchanges& exchanges) {
  if (atomicAdd(exchanges.finished_blocks, 1u) != gridDim.x - 1) return;
  *exchanges.finished_blocks = 0;
  *exchanges.last_tag += static_cast<uint32_t>(args.num_layers);
}

}  // namespace quire::ops::cuda::step
