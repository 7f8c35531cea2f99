#pragma once
// The second kernel of sampling: one block a row, from what the first left to the token.
//
// Thread safety: free functions.
#include "ops/sampling.cuh"

namespace quire::ops::cuda {

inline constexpr int kChooseThreads = 512;
// Tokens that top_k leaves are compared in pairs, a thread each, if they are no more than this.
inline constexpr int kListSize = kChooseThreads;
// What a weight of 1 counts in integer sums: no sum of kMostTokens overflows, and what rounding
// loses of a whole vocabulary is about 1e-8.
inline constexpr float kWeightUnit = 0x1p42f;

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

struct ChooseShared {
  unsigned long long sum;
  unsigned long long best;
  Place winner;
  float warp_values[kChooseThreads / kWarpSize];
  uint32_t histogram[256];
  uint32_t key_prefix;
  int32_t num_left;  // of the k that are looked for
  int32_t num_hot;
  int32_t first;
  int32_t list_count;
  float list_logits[kListSize];
  int32_t list_ids[kListSize];
  unsigned long long list_weights[kListSize];
};

// All threads of a block call each method together, with the same arguments.
class Chooser {
 public:
  // `maxima` and `hot` have room for each chunk.
  __device__ Chooser(const SampleRow& row, const SampleScratch& scratch, ChooseShared& shared,
                     float* maxima, int32_t* hot)
      : row_(row),
        slices_(scratch.slices),
        shared_(shared),
        maxima_(maxima),
        hot_(hot),
        num_chunks_(static_cast<int32_t>(SampleScratch::num_chunks(row.vocab))) {
    load_maxima(scratch.chunk_maxima);
  }

  __device__ int32_t choose() {
    if (max_ == kMinusInfinity) return 0;
    if (row_.is_greedy() || !isfinite(max_)) return first_of_maximum();
    scale_ = row_.scale();
    float threshold = kLowestLogit;
    if (row_.min_p > 0.0f) {
      threshold = fmaxf(max_ + logf(row_.min_p) * row_.temperature, threshold);
    }
    Place winner;
    if (row_.has_top_k()) {
      const float bound = fmaxf(threshold, bound_of_top_k());
      const int64_t count = collect(bound);
      if (count <= kListSize) return choose_from_list(static_cast<int32_t>(count));
      if (count > row_.top_k) threshold = lowest_of_top_k(bound);
      winner = best_before(threshold, past_all());
    } else {
      winner = best_of_slices();
      if (winner.logit < threshold) winner = best_before(threshold, past_all());
    }
    if (row_.has_top_p()) winner = apply_top_p(threshold, winner);
    return winner.id;
  }

 private:
  // ---- What all threads agree on.

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

  // The token of the best rank, whose logit its thread knows.
  __device__ Place winner_of(unsigned long long rank, float logit) {
    __syncthreads();
    if (threadIdx.x == 0) {
      shared_.best = 0;
      shared_.winner = past_all();
    }
    __syncthreads();
    if (rank != 0) atomicMax(&shared_.best, rank);
    __syncthreads();
    if (rank != 0 && rank == shared_.best) shared_.winner = {logit, id_of_ranked(rank)};
    __syncthreads();
    return shared_.winner;
  }

  __device__ void load_maxima(const float* from) {
    float most = kMinusInfinity;
    for (int32_t chunk = thread(); chunk < num_chunks_; chunk += kChooseThreads) {
      maxima_[chunk] = from[chunk];
      most = fmaxf(most, maxima_[chunk]);
    }
    most = warp_max(most);
    if (threadIdx.x % kWarpSize == 0) shared_.warp_values[threadIdx.x / kWarpSize] = most;
    __syncthreads();
    for (const float value : shared_.warp_values) most = fmaxf(most, value);
    max_ = most;
  }

  // ---- Passes over the row.

  // Calls visit(four logits, id of the first) for chunks with a logit of at least `bound`; logits
  // below it are among them.
  template <typename Visit>
  __device__ void for_each_hot(float bound, const Visit& visit) {
    list_hot_chunks(bound);
    constexpr int kUnroll = 4;
    constexpr int kWarps = kChooseThreads / kWarpSize;
    const int lane = thread() % kWarpSize;
    const int32_t num_hot = shared_.num_hot;
    for (int32_t at = thread() / kWarpSize; at < num_hot; at += kUnroll * kWarps) {
      float4 fours[kUnroll];
      int32_t ids[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        const int32_t next = at + i * kWarps;
        ids[i] = next < num_hot ? hot_[next] * kChunk + lane * 4 : row_.vocab;
        fours[i] = load_logits(row_.logits, row_.vocab, ids[i]);
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) visit(fours[i], ids[i]);
    }
  }

  __device__ void list_hot_chunks(float bound) {
    __syncthreads();
    if (threadIdx.x == 0) shared_.num_hot = 0;
    __syncthreads();
    for (int32_t chunk = thread(); chunk < num_chunks_; chunk += kChooseThreads) {
      if (maxima_[chunk] >= bound) hot_[atomicAdd(&shared_.num_hot, 1)] = chunk;
    }
    __syncthreads();
  }

  // Calls visit(logit, id) for each of `four` that is at least `bound` and before `end`.
  template <typename Visit>
  __device__ void for_each_of(const float4& four, int32_t first_id, float bound, const Place& end,
                              const Visit& visit) {
    const float logits[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (logits[i] >= bound && end.is_after(logits[i], first_id + i)) {
        visit(logits[i], first_id + i);
      }
    }
  }

  __device__ int32_t first_of_maximum() {
    if (threadIdx.x == 0) shared_.first = row_.vocab;
    for_each_hot(max_, [&](const float4& four, int32_t first_id) {
      for_each_of(four, first_id, max_, past_all(),
                  [&](float, int32_t id) { atomicMin(&shared_.first, id); });
    });
    __syncthreads();
    return shared_.first;
  }

  // Of the tokens of at least `threshold` before `end`, in units of kWeightUnit.
  __device__ unsigned long long mass_before(float threshold, const Place& end) {
    unsigned long long mass = 0;
    for_each_hot(fmaxf(threshold, end.logit), [&](const float4& four, int32_t first_id) {
      for_each_of(four, first_id, threshold, end,
                  [&](float logit, int32_t) { mass += integer_weight(logit); });
    });
    return sum_of(mass);
  }

  // The best of the same tokens; past_all() where there are none.
  __device__ Place best_before(float threshold, const Place& end) {
    __syncthreads();
    if (threadIdx.x == 0) shared_.best = 0;  // what some thread reached; the others follow late
    unsigned long long best = 0;
    float best_logit = kMinusInfinity;
    for_each_hot(fmaxf(threshold, end.logit), [&](const float4& four, int32_t first_id) {
      const unsigned long long reached = *static_cast<volatile unsigned long long*>(&shared_.best);
      const float bound =
          reached == 0 ? kLowestLogit : static_cast<float>(score_of_ranked(reached)) - 1e-3f;
      const uint32_t limit = most_inverted_bits(bound, log_weight(max_of(four)));
      for_each_of(four, first_id, threshold, end, [&](float logit, int32_t id) {
        const uint32_t bits = noise_bits(row_.key, static_cast<uint32_t>(id));
        if (~bits > limit) return;
        const unsigned long long rank = rank_of(logit, id, bits);
        if (rank <= best) return;
        best = rank;
        best_logit = logit;
        if (rank > reached) atomicMax(&shared_.best, rank);
      });
    });
    return winner_of(best, best_logit);
  }

  // ---- Where all tokens were drawn from.

  __device__ Place best_of_slices() {
    unsigned long long best = 0;
    float best_logit = kMinusInfinity;
    for (int32_t i = thread(); i < num_slices(); i += kChooseThreads) {
      const SliceResult slice = slices_[i];
      if (slice.id < 0) continue;
      const uint32_t bits = noise_bits(row_.key, static_cast<uint32_t>(slice.id));
      const unsigned long long rank = rank_of(slice.logit, slice.id, bits);
      if (rank > best) {
        best = rank;
        best_logit = slice.logit;
      }
    }
    return winner_of(best, best_logit);
  }

  // In units of kWeightUnit.
  __device__ unsigned long long mass_of_slices() {
    unsigned long long mass = 0;
    for (int32_t i = thread(); i < num_slices(); i += kChooseThreads) {
      const SliceResult slice = slices_[i];
      if (slice.id < 0) continue;
      const float weight = weight_of(log_weight(slice.max));
      mass += __double2ull_rn(static_cast<double>(slice.sum) * weight * kWeightUnit);
    }
    return sum_of(mass);
  }

  __device__ Place apply_top_p(float threshold, Place winner) {
    const unsigned long long all =
        row_.sums_slices() ? mass_of_slices() : mass_before(threshold, past_all());
    const double target = static_cast<double>(row_.top_p) * static_cast<double>(all);
    while (static_cast<double>(mass_before(threshold, winner)) >= target) {
      const Place next = best_before(threshold, winner);
      if (next.logit == kMinusInfinity) break;
      winner = next;
    }
    return winner;
  }

  // ---- top_k.

  // At least top_k tokens reach it: as many chunks do.
  __device__ float bound_of_top_k() {
    if (row_.top_k > num_chunks_) return kLowestLogit;
    // Half of a key's bits are exact enough here.
    return float_of_key(key_of_rank<2>(row_.top_k, [&](const auto& count) {
      for (int32_t chunk = thread(); chunk < num_chunks_; chunk += kChooseThreads) {
        count(key_of(maxima_[chunk]));
      }
    }));
  }

  // The top_k'th logit in order, one of those of at least `bound`.
  __device__ float lowest_of_top_k(float bound) {
    return float_of_key(key_of_rank<4>(row_.top_k, [&](const auto& count) {
      for_each_hot(bound, [&](const float4& four, int32_t first_id) {
        for_each_of(four, first_id, bound, past_all(),
                    [&](float logit, int32_t) { count(key_of(logit)); });
      });
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
    int32_t own = 0;
    for (int i = 0; i < kDigitsPerLane; ++i) {
      own += static_cast<int32_t>(shared_.histogram[greatest - i]);
    }
    int32_t up_to = own;
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const int32_t other = __shfl_up_sync(0xffffffffu, up_to, distance);
      if (lane >= distance) up_to += other;
    }
    int32_t above = up_to - own;
    if (above >= left || up_to < left) return;
    for (int digit = greatest;; --digit) {
      const auto count = static_cast<int32_t>(shared_.histogram[digit]);
      if (above + count >= left) {
        shared_.key_prefix = prefix << 8 | static_cast<uint32_t>(digit);
        shared_.num_left = left - above;
        return;
      }
      above += count;
    }
  }

  // Lists tokens of at least `bound` and returns how many there are; more than kListSize are not
  // listed in full.
  __device__ int64_t collect(float bound) {
    __syncthreads();
    if (threadIdx.x == 0) shared_.list_count = 0;
    uint32_t count = 0;
    for_each_hot(bound, [&](const float4& four, int32_t first_id) {
      for_each_of(four, first_id, bound, past_all(), [&](float logit, int32_t id) {
        ++count;
        if (*static_cast<volatile int32_t*>(&shared_.list_count) >= kListSize) return;
        const int32_t at = atomicAdd(&shared_.list_count, 1);
        if (at >= kListSize) return;
        shared_.list_logits[at] = logit;
        shared_.list_ids[at] = id;
        shared_.list_weights[at] = integer_weight(logit);
      });
    });
    return sum_of(static_cast<int64_t>(count));
  }

  __device__ int32_t choose_from_list(int32_t count) {
    int32_t num_greater = 0;
    unsigned long long mass = 0;  // before this thread's token
    Place own = past_all();
    const bool has_token = thread() < count;
    if (has_token) {
      own = {shared_.list_logits[thread()], shared_.list_ids[thread()]};
      for (int32_t i = 0; i < count; ++i) {
        const float logit = shared_.list_logits[i];
        if (logit > own.logit) ++num_greater;
        if (own.is_after(logit, shared_.list_ids[i])) mass += shared_.list_weights[i];
      }
    }
    bool is_kept = has_token && num_greater < row_.top_k;
    if (row_.has_top_p()) {
      const unsigned long long all = sum_of(is_kept ? shared_.list_weights[thread()] : 0ull);
      const double target = static_cast<double>(row_.top_p) * static_cast<double>(all);
      is_kept = is_kept && (mass == 0 || static_cast<double>(mass) < target);
    }
    unsigned long long rank = 0;
    if (is_kept) {
      rank = rank_of(own.logit, own.id, noise_bits(row_.key, static_cast<uint32_t>(own.id)));
    }
    return winner_of(rank, own.logit).id;
  }

  // ---- Arithmetic.

  __device__ float log_weight(float logit) const {
    return (logit - max_) * scale_;
  }
  __device__ unsigned long long integer_weight(float logit) const {
    return __float2ull_rn(weight_of(log_weight(logit)) * kWeightUnit);
  }
  __device__ unsigned long long rank_of(float logit, int32_t id, uint32_t bits) const {
    return ranked(static_cast<double>(log_weight(logit)) + gumbel_noise_of(bits), id);
  }
  __device__ int32_t num_slices() const {
    return static_cast<int32_t>(SampleScratch::num_slices(row_.vocab));
  }
  static __device__ int thread() {
    return static_cast<int>(threadIdx.x);
  }

  const SampleRow& row_;
  const SliceResult* slices_;
  ChooseShared& shared_;
  float* maxima_;
  int32_t* hot_;
  int32_t num_chunks_;
  float max_;
  float scale_ = 0.0f;
};

}  // namespace quire::ops::cuda
