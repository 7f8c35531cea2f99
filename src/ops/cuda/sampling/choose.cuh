#pragma once
// The second kernel of sampling: one block a row, from what the first left to the token.
//
// Thread safety: free functions.
#include "ops/cuda/sampling/row.cuh"

namespace quire::ops::cuda {

// What a weight of 1 counts in integer sums: no sum of kMostTokens overflows, and what rounding
// loses of a whole vocabulary is about 1e-8.
inline constexpr float kWeightUnit = 0x1p42f;

struct ChooseShared {
  unsigned long long best;
  Place winner;
  unsigned long long weights[kListSize];  // of the listed tokens
};

class Chooser {
 public:
  __device__ Chooser(RowSearch& search, const SampleRow& row, const SliceResult* slices,
                     ChooseShared& shared)
      : search_(search), row_(row), slices_(slices), shared_(shared), max_(search.max()) {}

  __device__ int32_t choose() {
    if (!isfinite(max_)) return kNoToken;
    if (row_.is_greedy()) return search_.first_of_maximum();
    scale_ = row_.scale();
    float threshold = kLowestLogit;
    if (row_.min_p > 0.0f) {
      threshold = fmaxf(max_ + logf(row_.min_p) * row_.temperature, threshold);
    }
    Place winner;
    if (row_.has_top_k()) {
      const Listing listing = search_.collect_top(row_.top_k, threshold);
      if (listing.count <= kListSize) return choose_from_list(static_cast<int32_t>(listing.count));
      if (listing.count > row_.top_k) threshold = search_.lowest_of_top(row_.top_k, listing.bound);
      winner = best_before(threshold, past_all());
    } else {
      winner = best_of_slices();
      if (winner.logit < threshold) winner = best_before(threshold, past_all());
    }
    if (row_.has_top_p()) winner = apply_top_p(threshold, winner);
    return winner.id;
  }

 private:
  // The token of the best rank, whose logit its thread knows; past_all() where all ranks are 0.
  __device__ Place winner_by_rank(unsigned long long rank, float logit) {
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

  // The token of the best score of one from each thread that has one. Double precision, which takes
  // longer than all else, is for scores that are close to the best.
  __device__ Place winner_of(bool has_token, const Place& token) {
    const uint32_t bits = noise_bits(row_.key, static_cast<uint32_t>(token.id));
    const float score =
        has_token ? log_weight(token.logit) * kLog2E + quick_noise(bits) : kMinusInfinity;
    const bool is_close = score >= search_.max_over_block(score) - 2 * kScoreMargin && has_token;
    if (__syncthreads_count(is_close) > 1) {
      const unsigned long long rank = is_close ? rank_of(token.logit, token.id, bits) : 0;
      return winner_by_rank(rank, token.logit);
    }
    if (is_close) shared_.winner = token;
    __syncthreads();
    return shared_.winner;
  }

  // Of the tokens of at least `threshold` before `end`, in units of kWeightUnit.
  __device__ unsigned long long mass_before(float threshold, const Place& end) {
    unsigned long long mass = 0;
    search_.visit_chunks_reaching(
        fmaxf(threshold, end.logit), [&](const float4& four, int32_t first_id) {
          float sum = 0.0f;
          RowSearch::for_each_of(four, first_id, threshold, end, [&](float logit, int32_t) {
            sum += weight_of(log_weight(logit));
          });
          mass += __float2ull_rn(sum * kWeightUnit);
        });
    return search_.sum_of(mass);
  }

  // The best of the same tokens; past_all() where there are none.
  __device__ Place best_before(float threshold, const Place& end) {
    __syncthreads();
    if (threadIdx.x == 0) shared_.best = 0;  // what some thread reached; the others follow late
    unsigned long long best = 0;
    float best_logit = kMinusInfinity;
    search_.visit_chunks_reaching(fmaxf(threshold, end.logit), [&](const float4& four,
                                                                   int32_t first_id) {
      const unsigned long long reached = *static_cast<volatile unsigned long long*>(&shared_.best);
      const float bound =
          reached == 0 ? kLowestLogit : static_cast<float>(score_of_ranked(reached)) - 1e-3f;
      const uint32_t limit = most_inverted_bits(bound, log_weight(max_of(four)));
      RowSearch::for_each_of(four, first_id, threshold, end, [&](float logit, int32_t id) {
        const uint32_t bits = noise_bits(row_.key, static_cast<uint32_t>(id));
        if (~bits > limit) return;
        const unsigned long long rank = rank_of(logit, id, bits);
        if (rank <= best) return;
        best = rank;
        best_logit = logit;
        if (rank > reached) atomicMax(&shared_.best, rank);
      });
    });
    return winner_by_rank(best, best_logit);
  }

  // ---- Where all tokens were drawn from.

  __device__ Place best_of_slices() {
    static_assert(kMostTokens <= int64_t{kChooseThreads} * kSlice, "a slice a thread");
    Place winner = past_all();
    bool has_winner = false;
    if (thread() < search_.num_slices()) {
      const SliceResult slice = slices_[thread()];
      winner = {slice.logit, slice.id};
      has_winner = slice.id >= 0;
    }
    return winner_of(has_winner, winner);
  }

  // In units of kWeightUnit.
  __device__ unsigned long long mass_of_slices() {
    unsigned long long mass = 0;
    if (thread() < search_.num_slices()) {
      const SliceResult slice = slices_[thread()];
      const double weight = slice.id < 0 ? 0.0 : weight_of(log_weight(slice.max));
      mass = __double2ull_rn(weight * slice.sum * kWeightUnit);
    }
    return search_.sum_of(mass);
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

  __device__ int32_t choose_from_list(int32_t count) {
    Place own = past_all();
    const bool has_token = thread() < count;
    if (has_token) {
      own = search_.listed(thread());
      shared_.weights[thread()] = integer_weight(own.logit);
    }
    __syncthreads();
    int32_t num_greater = 0;
    unsigned long long mass = 0;  // before this thread's token
    if (has_token) {
#pragma unroll 8
      for (int32_t i = 0; i < count; ++i) {
        const Place other = search_.listed(i);
        const unsigned long long weight = shared_.weights[i];
        num_greater += other.logit > own.logit ? 1 : 0;
        mass += own.is_after(other.logit, other.id) ? weight : 0;
      }
    }
    bool is_kept = has_token && num_greater < row_.top_k;
    if (row_.has_top_p()) {
      const unsigned long long all = search_.sum_of(is_kept ? shared_.weights[thread()] : 0ull);
      const double target = static_cast<double>(row_.top_p) * static_cast<double>(all);
      is_kept = is_kept && (mass == 0 || static_cast<double>(mass) < target);
    }
    return winner_of(is_kept, own).id;
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
  static __device__ int thread() {
    return RowSearch::thread();
  }

  RowSearch& search_;
  const SampleRow& row_;
  const SliceResult* slices_;
  ChooseShared& shared_;
  float max_;
  float scale_ = 0.0f;
};

}  // namespace quire::ops::cuda
