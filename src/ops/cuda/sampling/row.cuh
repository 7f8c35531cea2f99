#pragma once
// Looking through a row of logits whose chunks' maxima are known: passes read only the chunks that
// hold what they look for.
//
// Thread safety: free functions.
#include "ops/cuda/sampling/sampling.cuh"

namespace quire::ops::cuda {

inline constexpr int kChooseThreads = 512;
inline constexpr int kChooseWarps = kChooseThreads / kWarpSize;
// Tokens that are few enough to compare in pairs, a thread each.
inline constexpr int kListSize = kChooseThreads;

// A place in the order of tokens: the more likely before, of equal ones the lower id.
struct Place {
  float logit;
  int32_t id;
  __device__ bool is_after(float other_logit, int32_t other_id) const {
    return other_logit > logit || (other_logit == logit && other_id < id);
  }
};

// After every token.
__device__ inline Place past_all() {
  return {kMinusInfinity, 0};
}

// Tokens of at least `bound`; more than kListSize are not listed in full.
struct Listing {
  int64_t count;
  float bound;
};

struct RowShared {
  unsigned long long sum;
  float warp_values[kChooseWarps];
  float slice_maxima[kMostTokens / kSlice];
  float slice_bound;
  uint32_t histogram[256];
  uint32_t key_prefix;
  int32_t num_left;  // of the k that are looked for
  int32_t num_found_chunks;
  int32_t first;
  int32_t list_count;
  Place list[kListSize];
};

// One block's view of a row. All of its kChooseThreads threads call each method together, with the
// same arguments.
class RowSearch {
 public:
  // `maxima` and `found_chunks` are shared memory with room for each chunk; `allowed` is
  // SampleRow's.
  __device__ RowSearch(const float* logits, int32_t vocab, const float* chunk_maxima,
                       RowShared& shared, float* maxima, int32_t* found_chunks,
                       const uint32_t* allowed = nullptr)
      : logits_(logits),
        allowed_(allowed),
        vocab_(vocab),
        num_chunks_(static_cast<int32_t>(SampleScratch::num_chunks(vocab))),
        shared_(shared),
        maxima_(maxima),
        found_chunks_(found_chunks) {
    load_maxima(chunk_maxima);
  }

  __device__ float max() const { return max_; }
  __device__ int32_t num_slices() const {
    return static_cast<int32_t>(SampleScratch::num_slices(vocab_));
  }
  // Of those that collect_top() listed.
  __device__ const Place& listed(int32_t i) const { return shared_.list[i]; }
  static __device__ int thread() { return static_cast<int>(threadIdx.x); }

  // The sum over the block.
  template <typename T>
  __device__ T sum_of(T value) {
    auto sum = static_cast<unsigned long long>(value);
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    __syncthreads();
    if (threadIdx.x == 0) shared_.sum = 0;
    __syncthreads();
    if (threadIdx.x % kWarpSize == 0 && sum != 0) atomicAdd(&shared_.sum, sum);
    __syncthreads();
    return static_cast<T>(shared_.sum);
  }

  // The greatest over the block.
  __device__ unsigned long long max_of(unsigned long long value) {
    __syncthreads();
    if (threadIdx.x == 0) shared_.sum = 0;
    __syncthreads();
    if (value != 0) atomicMax(&shared_.sum, value);
    __syncthreads();
    return shared_.sum;
  }

  // The maximum over the block.
  __device__ float max_over_block(float value) {
    value = warp_max(value);
    __syncthreads();
    if (threadIdx.x % kWarpSize == 0) shared_.warp_values[threadIdx.x / kWarpSize] = value;
    __syncthreads();
    for (const float other : shared_.warp_values) value = fmaxf(value, other);
    return value;
  }

  // Calls visit(four logits, id of the first) for chunks with a logit of at least `bound`; logits
  // below it are among them.
  template <typename Visit>
  __device__ void visit_chunks_reaching(float bound, const Visit& visit) {
    find_chunks_reaching(bound);
    constexpr int kUnroll = 4;
    const int lane = thread() % kWarpSize;
    const int32_t num_found_chunks = shared_.num_found_chunks;
    for (int32_t at = thread() / kWarpSize; at < num_found_chunks; at += kUnroll * kChooseWarps) {
      float4 fours[kUnroll];
      int32_t ids[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        const int32_t next = at + i * kChooseWarps;
        ids[i] = next < num_found_chunks ? found_chunks_[next] * kChunk + lane * 4 : vocab_;
        fours[i] = mask_logits(load_logits(logits_, vocab_, ids[i]), allowed_, vocab_, ids[i]);
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) visit(fours[i], ids[i]);
    }
  }

  // Calls visit(logit, id) for each of `four` that is at least `bound` and before `end`.
  template <typename Visit>
  static __device__ void for_each_of(const float4& four, int32_t first_id, float bound,
                                     const Place& end, const Visit& visit) {
    const float logits[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (logits[i] >= bound && end.is_after(logits[i], first_id + i)) {
        visit(logits[i], first_id + i);
      }
    }
  }

  __device__ int32_t first_of_maximum() {
    if (threadIdx.x == 0) shared_.first = vocab_;
    visit_chunks_reaching(max_, [&](const float4& four, int32_t first_id) {
      for_each_of(four, first_id, max_, past_all(),
                  [&](float, int32_t id) { atomicMin(&shared_.first, id); });
    });
    __syncthreads();
    return shared_.first;
  }

  // The k'th logit in order, one of those of at least `bound`.
  __device__ float lowest_of_top(int32_t k, float bound) {
    return float_of_key(key_of_rank<4>(k, [&](const auto& count) {
      visit_chunks_reaching(bound, [&](const float4& four, int32_t first_id) {
        for_each_of(four, first_id, bound, past_all(),
                    [&](float logit, int32_t) { count(key_of(logit)); });
      });
    }));
  }

  // Lists tokens of at least `threshold`, those of the top k among them and, in most rows, few
  // others.
  __device__ Listing collect_top(int32_t k, float threshold) {
    Listing listing = {kListSize + 1, threshold};
    if (k <= num_slices()) listing = collect(fmaxf(threshold, slice_bound(k)));
    if (listing.count > kListSize) listing = collect(fmaxf(threshold, chunk_bound(k)));
    return listing;
  }

 private:
  // Lists tokens of at least `bound`.
  __device__ Listing collect(float bound) {
    __syncthreads();
    if (threadIdx.x == 0) shared_.list_count = 0;
    uint32_t count = 0;
    visit_chunks_reaching(bound, [&](const float4& four, int32_t first_id) {
      for_each_of(four, first_id, bound, past_all(), [&](float logit, int32_t id) {
        ++count;
        if (*static_cast<volatile int32_t*>(&shared_.list_count) >= kListSize) return;
        const int32_t at = atomicAdd(&shared_.list_count, 1);
        if (at >= kListSize) return;
        shared_.list[at] = {logit, id};
      });
    });
    return {sum_of(static_cast<int64_t>(count)), bound};
  }

  // At least k tokens reach it: as many slices do.
  __device__ float slice_bound(int32_t k) {
    if (thread() < num_slices()) {
      const float own = shared_.slice_maxima[thread()];
      int32_t num_before = 0;
#pragma unroll 8
      for (int32_t i = 0; i < num_slices(); ++i) {
        const float other = shared_.slice_maxima[i];
        num_before += other > own || (other == own && i < thread()) ? 1 : 0;
      }
      if (num_before == k - 1) shared_.slice_bound = own;
    }
    __syncthreads();
    return shared_.slice_bound;
  }

  // At least k tokens reach it, as many chunks do: closer than the slices' bound, and slower.
  __device__ float chunk_bound(int32_t k) {
    if (k > num_chunks_) return kLowestLogit;
    // Half of a key's bits are exact enough here.
    return float_of_key(key_of_rank<2>(k, [&](const auto& count) {
      for (int32_t chunk = thread(); chunk < num_chunks_; chunk += kChooseThreads) {
        count(key_of(maxima_[chunk]));
      }
    }));
  }

  // Bits of the k'th greatest key, from the top: 8 a round, then zeros. for_each_key(count) calls
  // count(key) for at least k keys.
  template <int kRounds, typename ForEachKey>
  __device__ uint32_t key_of_rank(int32_t k, const ForEachKey& for_each_key) {
    uint32_t prefix = 0;
    int32_t left = k;
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
      const int shift = 24 - 8 * round;
      __syncthreads();
      for (int i = thread(); i < 256; i += kChooseThreads) shared_.histogram[i] = 0;
      __syncthreads();
      for_each_key([&](uint32_t key) {
        if (round == 0 || key >> (shift + 8) == prefix) {
          atomicAdd(&shared_.histogram[(key >> shift) & 255u], 1u);
        }
      });
      __syncthreads();
      if (threadIdx.x < kWarpSize) find_digit(prefix, left);
      __syncthreads();
      prefix = shared_.key_prefix;
      left = shared_.num_left;
    }
    return prefix << (32 - 8 * kRounds);
  }

  // For one warp: the digit in which the count, from the greatest down, reaches `left`.
  __device__ void find_digit(uint32_t prefix, int32_t left) {
    constexpr int kDigitsPerLane = 256 / kWarpSize;
    const int lane = thread();
    const int greatest = 255 - lane * kDigitsPerLane;
    int32_t counts[kDigitsPerLane];
    int32_t own = 0;
#pragma unroll
    for (int i = 0; i < kDigitsPerLane; ++i) {
      counts[i] = static_cast<int32_t>(shared_.histogram[greatest - i]);
      own += counts[i];
    }
    int32_t up_to = own;
#pragma unroll
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const int32_t other = __shfl_up_sync(0xffffffffu, up_to, distance);
      if (lane >= distance) up_to += other;
    }
    int32_t above = up_to - own;
    if (above >= left || up_to < left) return;
#pragma unroll
    for (int i = 0; i < kDigitsPerLane; ++i) {
      if (above < left && above + counts[i] >= left) {
        shared_.key_prefix = prefix << 8 | static_cast<uint32_t>(greatest - i);
        shared_.num_left = left - above;
      }
      above += counts[i];
    }
  }

  __device__ void load_maxima(const float* from) {
    static_assert(kChunksPerSlice == kWarpSize, "a warp loads the chunks of a slice");
    float most = kMinusInfinity;
    for (int32_t slice = thread() / kWarpSize; slice < num_slices(); slice += kChooseWarps) {
      const int lane = thread() % kWarpSize;
      const int32_t chunk = slice * kChunksPerSlice + lane;
      const float value = from[chunk];
      if (chunk < num_chunks_) maxima_[chunk] = value;
      const float slice_max = warp_max(value);
      if (lane == 0) shared_.slice_maxima[slice] = slice_max;
      most = fmaxf(most, slice_max);
    }
    max_ = max_over_block(most);
  }

  __device__ void find_chunks_reaching(float bound) {
    __syncthreads();
    if (threadIdx.x == 0) shared_.num_found_chunks = 0;
    __syncthreads();
    for (int32_t chunk = thread(); chunk < num_chunks_; chunk += kChooseThreads) {
      if (maxima_[chunk] >= bound) found_chunks_[atomicAdd(&shared_.num_found_chunks, 1)] = chunk;
    }
    __syncthreads();
  }

  const float* logits_;
  const uint32_t* allowed_;
  int32_t vocab_;
  int32_t num_chunks_;
  RowShared& shared_;
  float* maxima_;
  int32_t* found_chunks_;
  float max_;
};

// Bytes of dynamic shared memory for the two arrays of a RowSearch. Allows them to the kernel,
// which has static_bytes of static shared memory.
template <typename... Params>
size_t allow_search_bytes(const CudaStream& stream, void (*kernel)(Params...), size_t static_bytes,
                          int64_t vocab) {
  const auto bytes =
      static_cast<size_t>(SampleScratch::num_chunks(vocab)) * (sizeof(float) + sizeof(int32_t));
  constexpr size_t kAlwaysAllowed = size_t{32} << 10;
  if (bytes > kAlwaysAllowed) allow_shared_memory(stream, kernel, static_bytes);
  return bytes;
}

}  // namespace quire::ops::cuda
