#pragma once
// Decode attention for every element type and head size: threads take keys, then elements of
// the output. Keys and values are read once for each row of a unit.
#include "core/launch.cuh"
#include "ops/cuda/attention/decode/decode.cuh"

namespace quire::ops::cuda {

inline constexpr int kPlainHeadTile = 16;

__device__ inline float block_reduce(float value, float* shared, bool is_max) {
  const auto combine = [is_max](float a, float b) { return is_max ? fmaxf(a, b) : a + b; };
  for (int i = 16; i > 0; i /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, i));
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float total = shared[0];
  for (int i = 1; i < kDecodeWarps; ++i) total = combine(total, shared[i]);
  return total;
}

// The index of a block's unit of a turn. Items are in descending order of size: who takes the
// larger of one turn takes the smaller of the next.
__device__ inline int unit_of_turn(int turn) {
  const auto grid = static_cast<int>(gridDim.x);
  const auto block = static_cast<int>(blockIdx.x);
  return turn * grid + (turn % 2 == 0 ? block : grid - 1 - block);
}

// Index of a token's row of head_dim elements in the cache.
__device__ inline int64_t cache_row(const DecodeParams& p, const DecodeUnit& unit, int token) {
  const int64_t block = p.block_tables[unit.seq * p.table_width + token / p.block_size];
  return (block * p.num_kv_heads + unit.kv_head) * p.block_size + token % p.block_size;
}

// Shared memory: rows, probabilities, the reduction's, the query, outputs of kPlainHeadTile rows.
inline size_t plain_shared_bytes(int head_dim) {
  return kDecodeChunk * sizeof(int64_t) +
         sizeof(float) * (kDecodeChunk + kDecodeWarps + 2 * kPlainHeadTile +
                          static_cast<size_t>(head_dim) * (1 + kPlainHeadTile));
}

template <typename T, typename Kv>
__global__ void __launch_bounds__(kDecodeThreads)
    plain_decode_attention(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(16) char shared[];
  auto* rows = reinterpret_cast<int64_t*>(shared);
  auto* probabilities = reinterpret_cast<float*>(rows + kDecodeChunk);
  float* reduction = probabilities + kDecodeChunk;
  float* maxima = reduction + kDecodeWarps;
  float* sums = maxima + kPlainHeadTile;
  float* query = sums + kPlainHeadTile;
  float* outputs = query + p.head_dim;
  const int thread = static_cast<int>(threadIdx.x);
  const auto* keys = static_cast<const Kv*>(p.keys);
  const auto* values = static_cast<const Kv*>(p.values);

  wait_for_previous();
  release_next();
  const int num_units = *p.num_items * p.slots;
  for (int turn = 0; unit_of_turn(turn) < num_units; ++turn) {
    const int index = unit_of_turn(turn);
    const DecodeUnit unit = make_unit(p, index, p.items[index / p.slots]);
    if (!unit.is_visible(p.sliding_window)) continue;
    const float scale = score_scale<Kv>(p, unit.kv_head);
    const int first = max(unit.chunk * kDecodeChunk, unit.first_visible(p.sliding_window));
    const int count = min((unit.chunk + 1) * kDecodeChunk, unit.context_len) - first;
    for (int i = thread; i < count; i += kDecodeThreads) {
      rows[i] = cache_row(p, unit, first + i) * p.head_dim;
    }

    for (int row = 0; row < unit.num_rows; ++row) {
      const UnitRow at = unit_row<true>(p, unit, row);
      const int end = unit.end_of(at.query) - first;
      const int begin = p.sliding_window > 0 ? end - p.sliding_window : 0;
      const T* q = static_cast<const T*>(p.q) + (unit.first_query + at.query) * p.q_stride +
                   int64_t{at.head} * p.head_dim;
      for (int d = thread; d < p.head_dim; d += kDecodeThreads) {
        query[d] = to_float(q[d]);
      }
      __syncthreads();
      float highest = -INFINITY;
      for (int i = thread; i < count; i += kDecodeThreads) {
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) {
          score += query[d] * static_cast<float>(keys[rows[i] + d]);
        }
        probabilities[i] = i >= begin && i < end ? score * scale : -INFINITY;
        highest = fmaxf(highest, probabilities[i]);
      }
      const float maximum = block_reduce(highest, reduction, true);
      const float base = maximum == -INFINITY ? 0.0f : maximum;  // the query may see none of it
      float sum_of_thread = 0.0f;
      for (int i = thread; i < count; i += kDecodeThreads) {
        probabilities[i] = exp2f(probabilities[i] - base);
        sum_of_thread += probabilities[i];
      }
      const float sum = block_reduce(sum_of_thread, reduction, false);
      if (thread == 0) {
        maxima[row] = maximum;
        sums[row] = sum;
      }
      for (int d = thread; d < p.head_dim; d += kDecodeThreads) {
        float output = 0.0f;
        for (int i = 0; i < count; ++i) {
          output += probabilities[i] * static_cast<float>(values[rows[i] + d]);
        }
        outputs[row * p.head_dim + d] = output;
      }
      __syncthreads();
    }
    finish_unit<T, true>(
        p, unit, thread / 32, kDecodeWarps,
        [&](int e) -> DecodePartial {
          const int row = e / p.head_dim;
          return {*reinterpret_cast<const float4*>(outputs + e), maxima[row], sums[row]};
        },
        [] {});
    __syncthreads();
  }
}

}  // namespace quire::ops::cuda
