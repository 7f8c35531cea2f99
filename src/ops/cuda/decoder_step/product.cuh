#pragma once
// The matrix products of the decoder step's kernel: a block's share of weight rows, times up to 8
// rows of activations.
//
// All threads read the activations, part by part, into shared memory (activations.cuh). Then each
// slot of the ring, some columns of a group of weight rows, is computed by some of the warps, some
// of the columns each (slot.cuh, integer_slot.cuh), and the warps' sums meet in shared memory: an
// element is always summed in the same order.
#include "ops/cuda/decoder_step/activations.cuh"
#include "ops/cuda/math.cuh"

namespace quire::ops::cuda::step {

// What multiplies a warp's part of a slot, but for scales of outputs, and stores its partial sums.
template <typename W>
using Slots = std::conditional_t<
    W::kIsInteger, IntegerSlots<W>,
    std::conditional_t<W::kIsFloat8, Float8Slots<W>, DenseSlots<typename W::Activation>>>;

// Of a matrix to which no row's adapter adds. adapters.cuh has those that do.
struct NoAdapters {
  static constexpr bool kAny = false;
};

// Partial sums: [group][column][warp of the slot's][row of activations][features of a group]. A
// column is a column slot or, where rows are read ahead, those that come to the same warps: the
// ring gets what memory that saves.
template <typename W>
__device__ __forceinline__ int partial_at(const BlockState& block, const Share& share, int group,
                                          int column_slot) {
  int columns = share.num_column_slots<W>();
  int column = column_slot;
  if constexpr (W::kReadsAhead) {
    columns = min(columns, share.sum_columns);
    column &= share.sum_columns - 1;
  }
  return (group * columns + column) * W::kWarpsPerSlot * block.rows * W::kUnitRows;
}

// The products of column slots [begin, end) of the share, every kSlotsAtOnce-th slot by the same
// warps: of the part or, where rows are read ahead, of the product, wherever a part begins. The
// activations in shared memory begin with column slot `first`.
//
// A wait for a slot tells a phase from the one before it only by its parity, so it is right only
// once all phases before that one have ended; copies may end in any order. What a warp has waited
// for itself has ended, and so has what came before the last barrier. Thus a slot that is used
// again in a part must come to the same warps: the ring is as long as a part, or a multiple of
// kSlotsAtOnce (layout_for() of decoder_step_cuda.cu).
template <typename W>
__device__ __forceinline__ void multiply_slots(BlockState& block, const Share& share, int first,
                                               int begin, int end) {
  constexpr int kAtOnce = kSlotsAtOnce<W>;
  Slots<W> slots(block);
  const int num_groups = share.num_groups<W>();
  const int of_slot = block.warp % W::kWarpsPerSlot;
  const int count = (end - begin) * num_groups;
  int at = begin;
  int i = block.warp / W::kWarpsPerSlot;
  if constexpr (W::kReadsAhead) i = (i - begin * num_groups) & (kAtOnce - 1);
  int group = i;
#pragma unroll 1
  for (; i < count; i += kAtOnce, group += kAtOnce) {
    while (group >= num_groups) {
      group -= num_groups;
      ++at;
    }
    const uint32_t place = block.slot + i;
    const uint32_t turns = block.by_slots.divide(place);
    const uint32_t slot = place - turns * block.by_slots.divisor();
    barrier_wait(block.ring.full(slot), block.parity ^ (turns & 1));
    uint32_t x = kSlotColumns<W> * (at - first);
    if constexpr (!W::kIsInteger) {
      x = shared_address(in_shared<unsigned char>(block.layout.x_at)) + 2 * x;
    }
    float* const to =
        block.sums() + partial_at<W>(block, share, group, at) + of_slot * block.rows * W::kUnitRows;
    const bool adds = W::kReadsAhead && at >= share.sum_columns;
    const auto multiply = [&](int set) {
      return slots.multiply(block.ring.data(slot), x, share.columns_of<W>(at),
                            share.first_row<W>(group), set);
    };
    const int last_set = slots.num_sets() - 1;
    decltype(multiply(0)) sums;
#pragma unroll 1
    for (int set = 0;; ++set) {
      sums = multiply(set);
      if (set == last_set) break;
      Slots<W>::store(block, sums, to, set, adds);
    }
    // Reads need no fence before the copies that the barrier lets go on.
    if constexpr (!W::kIsFloat8 && !W::kIsInteger) fence_async_proxy();
    __syncwarp();
    if (block.lane == 0) barrier_arrive(block.ring.empty(slot), kAtOnce);
    Slots<W>::store(block, sums, to, last_set, adds);
  }
  const uint32_t place = block.slot + count;
  const uint32_t turns = block.by_slots.divide(place);
  block.slot = place - turns * block.by_slots.divisor();
  block.parity ^= turns & 1;
}

// The products of the last part of the activations, and between those of its columns what adapters
// add. The barrier in there lets the slots behind it come to any warps.
template <typename W, typename Adapters>
__device__ __forceinline__ void multiply_adapted_slots(BlockState& block, const Share& share,
                                                       int begin, int end,
                                                       const Adapters& adapters) {
  int before = Adapters::columns_before(begin, end);
#pragma unroll 1
  for (int from = begin;; from = before, before = end) {
    multiply_slots<W>(block, share, begin, from, before);
    if (from != begin) return;
    adapters.template add_products<W>(block, share);
    if (before == end) return;
  }
}

// All partial sums of the share, of rows that pass through the norm where it has weights, and what
// adapters add to them.
template <typename W, bool kNormed, typename Adapters>
__device__ __forceinline__ void multiply(BlockState& block, const Share& share, const Rows& from,
                                         NormStep norm, const Adapters& adapters) {
  using T = typename W::Activation;
  const int chunk = block.layout.x_columns;
  constexpr bool kScalesLater = kNormed && !Elements<T>::kScalesFirst;
  if constexpr (kNormed && !kScalesLater) {
    read_squares<W>(block, from);
    norm.scales = true;
  }
  ActivationReader<W, kScalesLater, true> reader(block, from, norm);
  reader.ask(0);
#pragma unroll 1
  for (int begin = 0; begin < share.k; begin += chunk) {
    const int end = min(begin + chunk, share.k);
    if constexpr (Adapters::kAny) adapters.template load<W>(block, share, begin, end);
    reader.read(begin, end);
    if (end == share.k) reader.finish();
    block.synchronize();
    if (end < share.k) reader.ask(end);
    const int first = begin / kSlotColumns<W>;
    const int last = (end + kSlotColumns<W> - 1) / kSlotColumns<W>;
    if constexpr (Adapters::kAny) {
      adapters.publish_sums(block, share, begin, end);
      if (end == share.k) {
        multiply_adapted_slots<W>(block, share, first, last, adapters);
        block.synchronize();
        return;
      }
    }
    multiply_slots<W>(block, share, first, first, last);
    block.synchronize();
  }
}

// An element of the product, but for its scale: `feature` within the group. Its order of sums is
// that in which partial sums are added up where rows are read ahead.
template <typename W>
__device__ __forceinline__ float total_of(const BlockState& block, const Share& share, int group,
                                          int row, int feature) {
  const float* from =
      block.sums() + partial_at<W>(block, share, group, 0) + row * W::kUnitRows + feature;
  const int stride = block.rows * W::kUnitRows;
  const int columns = share.num_column_slots<W>();
  const int sums = min(share.sum_columns, columns) * W::kWarpsPerSlot;
  const int rest = W::kReadsAhead ? sums : columns * W::kWarpsPerSlot;
  static_assert(W::kWarpsPerSlot % 2 == 0);
  float total = 0;
#pragma unroll 1
  for (int i = 0; i < sums; i += 2) {
    float first = 0;
    float second = 0;
#pragma unroll 1
    for (int j = i; j < rest; j += sums) {
      first += from[j * stride];
      second += from[(j + 1) * stride];
    }
    total += first;
    total += second;
  }
  return total;
}

// The element that a thread adds up: adjacent threads have adjacent features.
struct Result {
  int group;  // of those that have results: one of two where the share is gated
  int row;
  int feature;  // within the group
};

template <typename W>
__device__ __forceinline__ Result result_of(const BlockState& block, int index) {
  const int rest = index / W::kUnitRows;
  const int group = static_cast<int>(block.by_rows.divide(static_cast<uint32_t>(rest)));
  return {group, rest - group * block.rows, index % W::kUnitRows};
}

// Publishes `value`, and the next lane's beside it, by lanes of even features.
template <typename T>
__device__ __forceinline__ void publish_pair(Word* exchange, int width, int row, int feature,
                                             float value, bool valid, uint32_t tag) {
  const float next = __shfl_down_sync(0xffffffffu, value, 1);
  if (valid && feature % 2 == 0) {
    publish(exchange + (static_cast<int64_t>(row) * width + feature) / 2, pair_of<T>(value, next),
            tag);
  }
}

// What the sums for a feature are multiplied by, and those for its other half where the share is
// gated; of a feature that the share does not have, 1. Float8 scales are read from device memory:
// to be called before a wait, which hides that.
template <typename W>
__device__ __forceinline__ float2 sum_factors(const Share& share, const float* scales,
                                              const Result& at) {
  if constexpr (!W::kIsFloat8) {
    return make_float2(1, 1);
  } else {
    constexpr float kSum = Float8Factors<typename W::Activation>::kSum;
    float2 factors = make_float2(kSum, kSum);
    if constexpr (W::kHasOutputScales) {
      const int feature = share.begin + W::kUnitRows * at.group + at.feature;
      if (feature < share.end) {
        factors.x *= scales[feature];
        if (share.gated()) factors.y *= scales[feature + share.second_half];
      }
    }
    return factors;
  }
}

// out = norm(in) * weight^T + bias for the block's share, or silu(first half) * second half of that
// where the share has halves. `scales`: the weight's, of outputs.
template <typename W, typename Adapters>
__device__ __forceinline__ void normed_product(BlockState& block, const Share& share,
                                               const Rows& in, const float* norm, float eps,
                                               const float* scales, const float* bias,
                                               const Adapters& adapters, Word* out, int out_width,
                                               uint32_t tag) {
  using T = typename W::Activation;
  float2 sum_factor = sum_factors<W>(share, scales, result_of<W>(block, block.thread));
  multiply<W, true>(block, share, in, {norm, false, eps}, adapters);
  const int groups = share.gated() ? share.num_groups<W>() / 2 : share.num_groups<W>();
  const int count = groups * W::kUnitRows * block.rows;
#pragma unroll 1
  for (int index = block.thread; index - block.lane < count; index += kComputeThreads) {
    const Result at = result_of<W>(block, index);
    const int feature = share.begin + W::kUnitRows * at.group + at.feature;
    const bool valid = index < count && feature < share.end;
    float value = 0;
    if (valid) {
      const float factor =
          Elements<T>::kScalesFirst ? 1.0f : norm_factor(block, at.row, share.k, eps);
      const int group = share.gated() ? 2 * at.group : at.group;
      if constexpr (Adapters::kAny) {
        const auto output = [&](int side, float factor_of_sum) {
          const float sum =
              factor_of_sum * total_of<W>(block, share, group + side, at.row, at.feature) +
              adapters.added(block, group + side, at.row, at.feature);
          return adapters.finished(share, at.row, side, feature, factor * sum,
                                   bias != nullptr ? bias[feature + side * share.second_half] : 0);
        };
        value = output(0, sum_factor.x);
        if (share.gated()) value = silu(value) * output(1, sum_factor.y);
      } else {
        value = factor * (sum_factor.x * total_of<W>(block, share, group, at.row, at.feature));
        if (bias != nullptr) value += bias[feature];
        if (share.gated()) {
          float up =
              factor * (sum_factor.y * total_of<W>(block, share, group + 1, at.row, at.feature));
          if (bias != nullptr) up += bias[feature + share.second_half];
          value = silu(value) * up;
        }
      }
    }
    publish_pair<T>(out, out_width, at.row, feature, value, valid, tag);
    sum_factor = sum_factors<W>(share, scales, result_of<W>(block, index + kComputeThreads));
  }
  block.synchronize();
}

// residual += in * weight^T + bias, over all ranks, where each thread holds one element of the
// block's share of the residual; publishes it. `scales`: the weight's, of outputs.
template <typename W, typename Adapters>
__device__ __forceinline__ void add_projection(BlockState& block, const Share& share,
                                               const Rows& in, const float* scales,
                                               const float* bias, const Adapters& adapters,
                                               const PeerWords& peers, RankSum which, Word* out,
                                               int hidden, uint32_t tag, float& residual) {
  using T = typename W::Activation;
  const float sum_factor = sum_factors<W>(share, scales, result_of<W>(block, block.thread)).x;
  multiply<W, false>(block, share, in, {nullptr, false, 0}, adapters);
  const int count = share.num_groups<W>() * W::kUnitRows * block.rows;
  if (block.thread - block.lane < count) {
    const Result at = result_of<W>(block, block.thread);
    const int feature = share.begin + W::kUnitRows * at.group + at.feature;
    const bool valid = block.thread < count && feature < share.end;
    if (valid) {
      float value = sum_factor * total_of<W>(block, share, at.group, at.row, at.feature);
      if constexpr (Adapters::kAny) {
        value += adapters.added(block, at.group, at.row, at.feature);
        value = adapters.finished(share, at.row, 0, feature, value,
                                  bias != nullptr ? bias[feature] : 0.0f);
      } else if (bias != nullptr) {
        value += bias[feature];
      }
      if (peers.size > 1) {
        value = sum_over_ranks(peers, which, at.row, feature, hidden, value, tag);
      }
      residual += value;
    }
    publish_pair<T>(out, hidden, at.row, feature, residual, valid, tag);
  }
  block.synchronize();
}

}  // namespace quire::ops::cuda::step
