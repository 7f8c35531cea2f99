#pragma once
// Sampling on the CPU: one row at a time, by one thread. ops/sampling.h has the contract.
//
// Thread safety: a RowSampler is one thread's workspace.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ops/cpu/sampling_scan.h"
#include "ops/sampling.h"

namespace quire::ops {

class RowSampler {
 public:
  // Leaves `logits` unchanged, except for ids that are masked, biased or penalised in a row where
  // all tokens are allowed.
  SampledToken sample(std::span<float> logits, const SamplingRow& row);

  // The part of sample() that biases, masks and penalises, in place.
  void adjust(std::span<float> logits, const SamplingRow& row);

  std::vector<TokenLogprob> logprobs(std::span<const float> logits, int32_t token_id,
                                     int num_logprobs);

 private:
  // The arguments of one row after temperature: log p(i) is (logit - max) * scale, up to a
  // constant.
  struct Scaled {
    std::span<const float> logits;
    float max;
    float scale;
    float log_weight(float logit) const { return (logit - max) * scale; }
  };

  // Fills masked_ with the logits of the tokens that are allowed.
  void mask(std::span<const float> logits, std::span<const uint32_t> allowed);
  void penalize(std::span<float> logits, const SamplingRow& row);
  void set(std::span<float> logits, int32_t id, float value);
  void undo_changes(std::span<float> logits);
  float prepare_maxima(std::span<const float> logits);
  int32_t choose(std::span<const float> logits, const SamplingRow& row);
  int32_t choose_from_all(const Scaled& scaled, const SamplingRow& row, float threshold);
  int32_t choose_from_candidates(const Scaled& scaled, const SamplingRow& row, float threshold);
  void collect_top_p(const Scaled& scaled, float top_p, float threshold);
  double weigh_candidates(const Scaled& scaled);  // returns the sum
  // Keeps the fewest of the most likely candidates whose weights reach `target`; all if none do.
  void keep_mass(double target);

  std::vector<float> maxima_;
  std::vector<float> masked_;
  std::vector<Candidate> candidates_;
  std::vector<std::pair<int32_t, float>> changes_;  // ids and their raw logits, in order
  std::vector<bool> seen_;
  std::vector<int32_t> sorted_ids_;
};

}  // namespace quire::ops
