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
  return {share_of(qkv_width(args), args.hidden), share_of(args.hidden, attention_width(args)),
          share_of(args.inner, args.hidden, args.inner), share_of(args.hidden, args.inner)};
}

__device__ __forceinline__ void stream_weights(const CudaDecoderStep& args,
                                               const BlockShares& shares, const Ring& ring,
                                               int lane) {
  Filler filler(ring, lane);
  const int hidden = static_cast<int>(args.hidden);
  for (int i = 0; i < args.num_layers; ++i) {
    const CudaDecoderLayer& layer = args.layers[i];
    if (shares.qkv.num_tiles() > 0) filler.norm(layer.input_norm, hidden);
    filler.tiles_by_row(layer.qkv_weight, shares.qkv);
    filler.tiles_by_column(layer.o_weight, shares.o);
    if (shares.gate_up.num_tiles() > 0) filler.norm(layer.post_norm, hidden);
    filler.tiles_by_row(layer.gate_up_weight, shares.gate_up);
    filler.tiles_by_column(layer.down_weight, shares.down);
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
  const Result at = result_of(block, share.rows_per_tile());
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

template <typename T, int kSlots, int kHeadDim>
__device__ __forceinline__ void compute(BlockState& block, const CudaDecoderStep& args,
                                        const BlockShares& shares, const Exchanges& exchanges,
                                        CudaDecoderLayer* layers) {
  const int hidden = static_cast<int>(args.hidden);
  const int qkv = static_cast<int>(qkv_width(args));
  const uint32_t first_tag = *exchanges.last_tag + 1;
  const Owned owned = owned_of(block, shares.o);
  float residual = embedded<T>(args, owned);
  constexpr int kLayerWords = kLayerBytes / 8;
  // Two layers are in shared memory: this one, and the next one on its way.
  const auto fetch_layer = [&](int i) {
    if (block.thread >= kLayerWords || i >= args.num_layers) return;
    reinterpret_cast<uint64_t*>(&layers[i % 2])[block.thread] =
        reinterpret_cast<const uint64_t*>(&args.layers[i])[block.thread];
  };
  fetch_layer(0);
  for (int i = 0; i < args.num_layers; ++i) {
    block.synchronize();
    fetch_layer(i + 1);
    const CudaDecoderLayer& layer = layers[i % 2];
    const uint32_t tag = first_tag + i;
    Columns x[kSlots];
    if (shares.qkv.num_tiles() > 0) {
      if (i == 0) {
        read_embedding(block, args, x);
      } else {
        read_residual(block, exchanges.after_mlp, hidden, tag - 1, x);
      }
      normed_product<T>(block, shares.qkv, x, layer.qkv_bias, args.eps, exchanges.qkv, qkv, tag);
    }
    attention<T, kHeadDim>(block, args, layer, exchanges, tag);
    add_projection<T>(block, shares.o, exchanges.attention, layer.o_bias, exchanges.after_attention,
                      hidden, tag, residual);
    if (shares.gate_up.num_tiles() > 0) {
      read_residual(block, exchanges.after_attention, hidden, tag, x);
      normed_product<T>(block, shares.gate_up, x, layer.gate_up_bias, args.eps, exchanges.inner,
                        static_cast<int>(args.inner), tag);
    }
    add_projection<T>(block, shares.down, exchanges.inner, layer.down_bias, exchanges.after_mlp,
                      hidden, tag, residual);
  }
  if (shares.o.num_tiles() > 0) {
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
