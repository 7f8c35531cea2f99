#pragma once
// The layers of the decoder step's kernel, in the two views that a block has of them: the weights
// to stream, and the chain of products and exchanges.
//
// The residual is float32 and never leaves its place: a block owns the same features in both
// projections of every layer, an element to a thread.
#include "ops/cuda/decoder_step/attention.cuh"
#include "ops/cuda/ptx/copy_async.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

namespace quire::ops::cuda::step {

// This block's of n features.
template <typename W>
__device__ __forceinline__ Share share_of(int64_t n, int64_t k, int64_t second_half = 0) {
  constexpr int kFeatures = kShareFeatures<W>;
  const int64_t pieces = n / kFeatures;
  const int64_t block = blockIdx.x;
  const int64_t blocks = gridDim.x;
  Share share = {static_cast<int>(k), static_cast<int>(kFeatures * (pieces * block / blocks)),
                 static_cast<int>(kFeatures * (pieces * (block + 1) / blocks)),
                 static_cast<int>(second_half)};
  share.sum_columns = sum_columns_of(share.num_groups<W>(), kSlotsAtOnce<W>);
  return share;
}

__device__ __forceinline__ int64_t qkv_width(const CudaDecoderStep& args) {
  return static_cast<int64_t>(args.num_heads + 2 * args.num_kv_heads) * args.head_dim;
}
__device__ __forceinline__ int64_t attention_width(const CudaDecoderStep& args) {
  return static_cast<int64_t>(args.num_heads) * args.head_dim;
}

template <typename W>
__device__ __forceinline__ BlockShares shares_of(const CudaDecoderStep& args) {
  return {
      {share_of<W>(qkv_width(args), args.hidden), share_of<W>(args.inner, args.hidden, args.inner)},
      {share_of<W>(args.hidden, attention_width(args)), share_of<W>(args.hidden, args.inner)}};
}

// The cached keys and values that a unit sees, a slot of keys and a slot of values for each of its
// tiles, as attend() of attention.cuh takes them.
__device__ __forceinline__ void stream_context(const CudaDecoderStep& args,
                                               const CudaDecoderLayer& layer,
                                               const AttentionUnit& unit, Filler& filler) {
  constexpr int kTokensAtOnce = 32 * kRowTokens;  // whose places in the cache the lanes look up
  const int block_size = args.cache.block_size;
  const int token_bytes = 2 * args.head_dim;
#pragma unroll 1
  for (int begin = first_tile(unit); begin < unit.cached_end; begin += kTokensAtOnce) {
    const int at = begin + kRowTokens * filler.lane();
    int64_t place = 0;
    if (at < unit.cached_end && at + kRowTokens > unit.begin) {
      const int index = at / block_size;
      const int64_t cache_block = args.block_tables[unit.seq * args.table_width + index];
      place = ((cache_block * args.num_kv_heads + unit.kv_head) * block_size + at -
               index * block_size) *
              token_bytes;
    }
    const int end = min(begin + kTokensAtOnce, unit.cached_end);
#pragma unroll 1
    for (int tile = begin; tile < end; tile += kTileTokens) {
      const int first = max(unit.begin - tile, 0) / kRowTokens;
      const int last = (min(unit.cached_end - tile, kTileTokens) + kRowTokens - 1) / kRowTokens;
      const int64_t row =
          __shfl_sync(0xffffffffu, place, (tile - begin) / kRowTokens + filler.lane() % kGroupRows);
      const int bytes = kRowTokens * token_bytes;
      filler.fill(static_cast<const char*>(layer.keys) + row, first, last, bytes);
      filler.fill(static_cast<const char*>(layer.values) + row, first, last, bytes);
    }
  }
}

// Brings into the L2 cache what a layer reads outside of the ring, long before: behind the weights
// that are on their way, a read of device memory takes microseconds.
template <typename W>
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
  // Of each output, or of all the blocks that the share touches.
  const auto scales = [&](const float* of, const Share& share_of) {
    if constexpr (W::kHasOutputScales) share(of, share_of);
    if constexpr (W::kHasBlockScales) {
      const auto rows = [&](int begin, int end) {
        const int per_row = share_of.k / int{kFloat8Block};
        features(of, begin / int{kFloat8Block} * per_row,
                 ((end - 1) / int{kFloat8Block} + 1) * per_row);
      };
      if (share_of.begin == share_of.end) return;
      rows(share_of.begin, share_of.end);
      if (share_of.gated()) {
        rows(share_of.begin + share_of.second_half, share_of.end + share_of.second_half);
      }
    }
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
    case 6:
      return features(layer.input_norm, 0, static_cast<int>(args.hidden));
    case 7:
      return features(layer.post_norm, 0, static_cast<int>(args.hidden));
    case 8:
      return scales(layer.qkv_scales, shares.normed[0]);
    case 9:
      return scales(layer.o_scales, shares.projected[0]);
    case 10:
      return scales(layer.gate_up_scales, shares.normed[1]);
    case 11:
      return scales(layer.down_scales, shares.projected[1]);
    default:
      return;
  }
}

// Of one of a layer's two halves, the first matrix or the second.
__device__ __forceinline__ int matrix_of(int half, bool is_projected) {
  return 2 * half + (is_projected ? 1 : 0);
}

template <typename W, typename Adapters>
__device__ __forceinline__ void stream_weights(const CudaDecoderStep& args,
                                               const Exchanges& exchanges,
                                               const SharedLayout& layout, const Ring& ring,
                                               int lane) {
  const BlockShares& shares = BlockState::shares();
  UnitList& units = BlockState::filler_units();
  int64_t listed_window = 0;
  Filler filler(ring, lane);
  if constexpr (Adapters::kAny) Adapters::fetch(args, layout, 0, true, lane, 32);
#pragma unroll 1
  for (int i = 0; i < args.num_layers; ++i) {
    const CudaDecoderLayer layer = args.layers[i];  // all of its pointers at a time
    prefetch_vectors<W>(args, layer, shares, filler);
    if constexpr (Adapters::kAny) {
      wait_for_all_copies();
      __syncwarp();
      Adapters::fetch(args, layout, i + 1, true, lane, 32);
    }
    const auto stream = [&](int half, bool is_projected, const void* weight, const float* scales,
                            const Share& share) {
      if constexpr (Adapters::kAny) {
        const Adapters adapters(args, exchanges, layout, i, matrix_of(half, is_projected), share,
                                true, 0);
        adapters.prefetch(share, filler);
      }
      filler.stream<W>(weight, scales, share);
    };
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const Share& normed = shares.normed[half];
      const bool first = half == 0;
      stream(half, false, first ? layer.qkv_weight : layer.gate_up_weight,
             first ? layer.qkv_scales : layer.gate_up_scales, normed);
      if (first) {
        if (i == 0 || layer.sliding_window != listed_window) {
          listed_window = layer.sliding_window;
          for (int j = lane; j < UnitList::kMaxUnits; j += 32) {
            units.at[j] = find_unit(args, listed_window, j);
          }
          __syncwarp();
        }
#pragma unroll 1
        for (int j = 0; j < UnitList::kMaxUnits && units.at[j].row >= 0; ++j) {
          stream_context(args, layer, units.at[j], filler);
        }
        __syncwarp();  // before the list may change
      }
      stream(half, true, first ? layer.o_weight : layer.down_weight,
             first ? layer.o_scales : layer.down_scales, shares.projected[half]);
    }
  }
}

// Whether blocks read the embedding of tokens by themselves; else what enters the first layer is
// published, as what a stage takes over is.
template <typename W>
__device__ __forceinline__ bool reads_embedding(const CudaDecoderStep& args) {
  return !W::kReadsAhead && args.token_ids != nullptr;
}

// Of a launch: one for each layer, and one before them for what is published first.
template <typename W>
__device__ __forceinline__ int num_tags(const CudaDecoderStep& args) {
  return args.num_layers + (reads_embedding<W>(args) ? 0 : 1);
}

// The feature of the residual that a thread owns.
struct Owned {
  int row;
  int feature;
  bool exists;
};

template <typename W>
__device__ __forceinline__ Owned owned_of(const BlockState& block, const Share& share) {
  const Result at = result_of<W>(block, block.thread);
  const int feature = share.begin + W::kUnitRows * at.group + at.feature;
  return {at.row, feature, at.group < share.num_groups<W>() && feature < share.end};
}

// An element's place in a [rows, hidden] tensor of the step.
__device__ __forceinline__ int64_t place_of(const CudaDecoderStep& args, const Owned& owned) {
  return owned.row * args.hidden + owned.feature;
}

// The residual that enters the first layer: the embedding of a token, or what the stage before has
// left.
template <typename T>
__device__ __forceinline__ float entering(const CudaDecoderStep& args, const Owned& owned) {
  if (!owned.exists) return 0;
  const T* const from = static_cast<const T*>(args.embedding);
  if (args.token_ids != nullptr) {
    return static_cast<float>(from[args.token_ids[owned.row] * args.hidden + owned.feature]);
  }
  const int64_t at = place_of(args, owned);
  return static_cast<float>(from[args.rows * args.hidden + at]) + static_cast<float>(from[at]);
}

// Leaves the residual to the next stage, with what rounding takes from it as the ranks' open sum.
template <typename T>
__device__ __forceinline__ void hand_over(const CudaDecoderStep& args, const Owned& owned,
                                          float residual) {
  if (!owned.exists) return;
  T* const hidden = static_cast<T*>(args.out);
  const int64_t at = place_of(args, owned);
  const T rounded = static_cast<T>(residual);
  const float rest = args.peers.rank == 0 ? residual - static_cast<float>(rounded) : 0.0f;
  hidden[args.rows * args.hidden + at] = rounded;
  hidden[at] = static_cast<T>(rest);
}

// What enters a layer, for who has asked for it.
template <typename T>
__device__ __forceinline__ void tap(const CudaDecoderStep& args, const Owned& owned, int place,
                                    float residual) {
  if (!owned.exists) return;
  const int64_t at = (int64_t{owned.row} * args.taps.count + place) * args.hidden + owned.feature;
  static_cast<T*>(args.taps.out)[at] = static_cast<T>(residual);
}

template <typename W>
__device__ __forceinline__ void final_norm(const BlockState& block, const CudaDecoderStep& args,
                                           const Rows& rows, const Owned& owned, float residual) {
  using T = typename W::Activation;
  const int hidden = static_cast<int>(args.hidden);
  read_squares<W>(block, rows);
  if (!owned.exists) return;
  const float value =
      residual * norm_factor(block, owned.row, hidden, args.eps) * args.final_norm[owned.feature];
  static_cast<T*>(args.out)[place_of(args, owned)] = static_cast<T>(value);
}

template <typename W, int kHeadDim, typename Adapters>
__device__ __forceinline__ void compute(BlockState& block, const CudaDecoderStep& args,
                                        const Exchanges& exchanges) {
  using T = typename W::Activation;
  const int hidden = static_cast<int>(args.hidden);
  const int qkv = static_cast<int>(qkv_width(args));
  const BlockShares& shares = block.shares();
  const bool embeds = reads_embedding<W>(args);
  const uint32_t first_tag = *exchanges.last_tag + num_tags<W>(args) - args.num_layers + 1;
  const Owned owned = owned_of<W>(block, shares.projected[0]);
  float residual = entering<T>(args, owned);
  if (!embeds) {  // published as the layer before would have
    publish_pair<T>(exchanges.after_mlp, hidden, owned.row, owned.feature, residual, owned.exists,
                    first_tag - 1);
  }
  constexpr int kLayerWords = kLayerBytes / 8;
  // Two layers are in shared memory: this one, and the next one on its way.
  const auto fetch_layer = [&](int i) {
    if constexpr (Adapters::kAny) {
      Adapters::fetch(args, block.layout, i, false, block.thread, kComputeThreads);
    }
    if (block.thread >= kLayerWords || i >= args.num_layers) return;
    copy_word_async(shared_address(reinterpret_cast<uint64_t*>(&block.layer(i)) + block.thread),
                    reinterpret_cast<const uint64_t*>(&args.layers[i]) + block.thread);
  };
  fetch_layer(0);
  const auto adapters_of = [&](int i, int half, bool is_projected, const Share& share,
                               uint32_t tag) {
    if constexpr (Adapters::kAny) {
      return Adapters(args, exchanges, block.layout, i, matrix_of(half, is_projected), share, false,
                      tag);
    } else {
      return Adapters();
    }
  };
  int64_t listed_window = 0;
  int next_tap = 0;
#pragma unroll 1
  for (int i = 0; i < args.num_layers; ++i) {
    if (next_tap < args.taps.count && args.taps.layers[next_tap] == i) {
      tap<T>(args, owned, next_tap++, residual);
    }
    wait_for_all_copies();
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
      if (normed.num_groups<W>() > 0) {
        const Rows in = {first ? exchanges.after_mlp : exchanges.after_attention,
                         first ? tag - 1 : tag, hidden,
                         embeds && first && i == 0 ? args.embedding : nullptr, args.token_ids};
        normed_product<W>(block, normed, in, first ? layer.input_norm : layer.post_norm, args.eps,
                          first ? layer.qkv_scales : layer.gate_up_scales,
                          first ? layer.qkv_bias : layer.gate_up_bias,
                          adapters_of(i, half, false, normed, tag), normed_out,
                          first ? qkv : static_cast<int>(args.inner), tag);
      }
      if (first) attention<T, kHeadDim>(block, args, layer, exchanges, tag);
      const Share& projected = shares.projected[half];
      if (projected.num_groups<W>() > 0) {
        const Rows in = {first ? exchanges.attention : exchanges.inner, tag, projected.k};
        add_projection<W>(
            block, projected, in, first ? layer.o_scales : layer.down_scales,
            first ? layer.o_bias : layer.down_bias, adapters_of(i, half, true, projected, tag),
            args.peers, first ? RankSum::kAfterAttention : RankSum::kAfterMlp,
            first ? exchanges.after_attention : exchanges.after_mlp, hidden, tag, residual);
      }
    }
  }
  if (args.final_norm == nullptr) {
    hand_over<T>(args, owned, residual);
  } else if (shares.projected[0].num_groups<W>() > 0) {
    final_norm<W>(block, args, {exchanges.after_mlp, first_tag + args.num_layers - 1, hidden},
                  owned, residual);
  }
}

// The last block to finish moves the tags on: every block has read them by then.
template <typename W>
__device__ __forceinline__ void finish(const CudaDecoderStep& args, const Exchanges& exchanges) {
  if (atomicAdd(exchanges.finished_blocks, 1u) != gridDim.x - 1) return;
  *exchanges.finished_blocks = 0;
  *exchanges.last_tag += static_cast<uint32_t>(num_tags<W>(args));
}

}  // namespace quire::ops::cuda::step
