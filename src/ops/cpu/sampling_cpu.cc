#include "ops/cpu/sampling_cpu.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace quire::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Finds the arg max of log weight + noise, of tokens offered in any order.
class GumbelRace {
 public:
  explicit GumbelRace(NoiseKey key) : key_(key) {}

  void offer(int32_t id, float log_weight) {
    const auto weight = static_cast<double>(log_weight);
    if (weight + kMaxGumbelNoise < best_) return;
    const double score = weight + gumbel_noise(noise_bits(key_, static_cast<uint32_t>(id)));
    if (score > best_ || (score == best_ && id < winner_)) {
      best_ = score;
      winner_ = id;
    }
  }

  // A token of at most this log weight can win only if its noise_bits are at least what is returned
  // (2^32: it cannot win). It wins with noise above d = best - log weight, where 1 - u <= -log(u) <
  // e^-d; the margins cover the rounding of fast_exp and of log.
  uint64_t bits_to_win(float log_weight) const {
    const double d = best_ - static_cast<double>(log_weight);
    if (d > kMaxGumbelNoise) return uint64_t{1} << 32;
    if (d <= 0) return 0;
    const double tail = static_cast<double>(fast_exp(static_cast<float>(-d))) * 1.00001;
    return static_cast<uint64_t>(std::max((1 - tail) * 0x1p32 - 2, 0.0));
  }

  NoiseKey key() const { return key_; }
  int32_t winner() const { return winner_; }

 private:
  NoiseKey key_;
  double best_ = -std::numeric_limits<double>::infinity();
  int32_t winner_ = 0;
};

Candidate median(const Candidate& a, const Candidate& b, const Candidate& c) {
  if (is_before(a, b)) return is_before(b, c) ? b : (is_before(a, c) ? c : a);
  return is_before(a, c) ? a : (is_before(b, c) ? c : b);
}

GumbelRace race_of(const SamplingRow& row) {
  return GumbelRace(noise_key(row.seed, row.index, row.position));
}

}  // namespace

SampledToken RowSampler::sample(std::span<float> logits, const SamplingRow& row) {
  const bool is_masked = !row.allowed.empty();
  if (is_masked) mask(logits, row.allowed);
  const std::span<float> adjusted = is_masked ? std::span<float>(masked_) : logits;
  adjust(adjusted, row);
  SampledToken token;
  token.token_id = choose(adjusted, row);
  if (row.num_logprobs >= 0 && token.token_id != kNoToken) {
    if (!is_masked) undo_changes(logits);
    token.logprobs = logprobs(logits, token.token_id, row.num_logprobs);
  }
  return token;
}

std::vector<TokenLogprob> RowSampler::logprobs(std::span<const float> logits, int32_t token_id,
                                               int num_logprobs) {
  const float max = prepare_maxima(logits);
  const double log_sum = std::isfinite(max) ? std::log(sum_exp(logits, max, 1.0f)) : 0.0;
  const auto logprob_of = [&](float logit) {
    if (logit == max && !std::isfinite(max)) return max > 0 ? 0.0f : -kInfinity;
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(max) - log_sum);
  };
  const float raw = logits[static_cast<size_t>(token_id)];
  const float logit = std::isnan(raw) ? -kInfinity : raw;

  std::vector<TokenLogprob> result;
  result.push_back(
      {token_id, logprob_of(logit), static_cast<int>(count_before(logits, logit, token_id)) + 1});
  if (num_logprobs <= 0) return result;
  const auto count = std::min(static_cast<size_t>(num_logprobs), logits.size());
  collect_top(logits, maxima_, kLowest, count, candidates_);
  std::sort(candidates_.begin(), candidates_.end(), is_before);
  for (size_t i = 0; i < std::min(count, candidates_.size()); ++i) {
    const Candidate& c = candidates_[i];
    result.push_back({c.id, logprob_of(c.logit), static_cast<int>(i) + 1});
  }
  return result;
}

void RowSampler::mask(std::span<const float> logits, std::span<const uint32_t> allowed) {
  check(allowed.size() * 32 >= logits.size(), "there is a bit for each token");
  masked_.assign(logits.size(), -kInfinity);
  for (size_t word = 0; word < allowed.size(); ++word) {
    for (uint32_t bits = allowed[word]; bits != 0; bits &= bits - 1) {
      const size_t token = word * 32 + static_cast<size_t>(std::countr_zero(bits));
      if (token < logits.size()) masked_[token] = logits[token];
    }
  }
}

void RowSampler::adjust(std::span<float> logits, const SamplingRow& row) {
  changes_.clear();
  for (const auto& [id, bias] : row.logit_bias) {
    check(id >= 0 && static_cast<size_t>(id) < logits.size(), "a biased id is in the vocabulary");
    set(logits, id, logits[static_cast<size_t>(id)] + bias);
  }
  for (const int32_t id : row.masked_ids) {
    check(id >= 0 && static_cast<size_t>(id) < logits.size(), "a masked id is in the vocabulary");
    set(logits, id, -kInfinity);
  }
  penalize(logits, row);
}

void RowSampler::penalize(std::span<float> logits, const SamplingRow& row) {
  if (row.repetition_penalty != 1.0f) {
    seen_.assign(logits.size(), false);
    for (const auto& ids : {row.prompt_ids, row.output_ids}) {
      for (const int32_t id : ids) {
        const auto at = static_cast<size_t>(id);
        check(id >= 0 && at < logits.size(), "an id of the history is in the vocabulary");
        if (seen_[at]) continue;
        seen_[at] = true;
        const float logit = logits[at];
        set(logits, id,
            logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty);
      }
    }
  }
  if (row.presence_penalty == 0.0f && row.frequency_penalty == 0.0f) return;
  sorted_ids_.assign(row.output_ids.begin(), row.output_ids.end());
  std::sort(sorted_ids_.begin(), sorted_ids_.end());
  for (auto begin = sorted_ids_.begin(); begin != sorted_ids_.end();) {
    const int32_t id = *begin;
    check(id >= 0 && static_cast<size_t>(id) < logits.size(), "an output id is in the vocabulary");
    const auto end = std::upper_bound(begin, sorted_ids_.end(), id);
    const auto count = static_cast<float>(end - begin);
    set(logits, id,
        logits[static_cast<size_t>(id)] - row.frequency_penalty * count - row.presence_penalty);
    begin = end;
  }
}

void RowSampler::set(std::span<float> logits, int32_t id, float value) {
  float& logit = logits[static_cast<size_t>(id)];
  changes_.emplace_back(id, logit);
  logit = value;
}

void RowSampler::undo_changes(std::span<float> logits) {
  for (auto it = changes_.rbegin(); it != changes_.rend(); ++it) {
    logits[static_cast<size_t>(it->first)] = it->second;
  }
}

float RowSampler::prepare_maxima(std::span<const float> logits) {
  block_maxima(logits, maxima_);
  return *std::max_element(maxima_.begin(), maxima_.end());
}

int32_t RowSampler::choose(std::span<const float> logits, const SamplingRow& row) {
  const float max = prepare_maxima(logits);
  if (!std::isfinite(max)) return kNoToken;
  if (row.temperature == 0.0f) return first_of_maximum(logits, maxima_, max);
  // Bounded so that the best token's 0 stays 0 at temperatures that have no finite reciprocal.
  const Scaled scaled{logits, max, std::min(1.0f / row.temperature, 1e30f)};
  const float threshold =
      row.min_p > 0.0f ? std::max(max + std::log(row.min_p) * row.temperature, kLowest) : kLowest;
  const bool takes_all =
      row.top_p >= 1.0f && (row.top_k <= 0 || static_cast<size_t>(row.top_k) >= logits.size());
  return takes_all ? choose_from_all(scaled, row, threshold)
                   : choose_from_candidates(scaled, row, threshold);
}

// Computing noise in full for each of a large vocabulary would cost more than all else. So the
// block of the best logit goes first, and of the others only tokens whose random bits are high
// enough to beat it are looked at closer: a handful in all.
int32_t RowSampler::choose_from_all(const Scaled& scaled, const SamplingRow& row, float threshold) {
  GumbelRace race = race_of(row);
  const auto run_block = [&](size_t block, uint64_t min_bits) {
    const size_t begin = block * kScanBlock;
    const size_t end = std::min(begin + kScanBlock, scaled.logits.size());
    for (size_t i = begin; i < end; ++i) {
      if (scaled.logits[i] < threshold) continue;
      if (noise_bits(race.key(), static_cast<uint32_t>(i)) < min_bits) continue;
      race.offer(static_cast<int32_t>(i), scaled.log_weight(scaled.logits[i]));
    }
  };
  const auto best = std::find(maxima_.begin(), maxima_.end(), scaled.max);
  run_block(static_cast<size_t>(best - maxima_.begin()), 0);
  for (size_t block = 0; block < maxima_.size(); ++block) {
    if (maxima_[block] < threshold) continue;
    const uint64_t min_bits = race.bits_to_win(scaled.log_weight(maxima_[block]));
    if (min_bits > std::numeric_limits<uint32_t>::max()) continue;
    const size_t begin = block * kScanBlock;
    const size_t size = std::min(kScanBlock, scaled.logits.size() - begin);
    if (any_noise_at_least(race.key(), static_cast<uint32_t>(begin), size,
                           static_cast<uint32_t>(min_bits))) {
      run_block(block, min_bits);
    }
  }
  return race.winner();
}

int32_t RowSampler::choose_from_candidates(const Scaled& scaled, const SamplingRow& row,
                                           float threshold) {
  if (row.top_k > 0) {
    const auto count = std::min(static_cast<size_t>(row.top_k), scaled.logits.size());
    collect_top(scaled.logits, maxima_, threshold, count, candidates_);
    if (row.top_p < 1.0f) keep_mass(static_cast<double>(row.top_p) * weigh_candidates(scaled));
  } else {
    collect_top_p(scaled, row.top_p, threshold);
  }
  GumbelRace race = race_of(row);
  for (const Candidate& c : candidates_) race.offer(c.id, scaled.log_weight(c.logit));
  return race.winner();
}

// The tokens that make up top_p are mostly near the best: look there first, and farther only where
// their sum falls short.
void RowSampler::collect_top_p(const Scaled& scaled, float top_p, float threshold) {
  const auto p = static_cast<double>(top_p);
  if (threshold > kLowest) {
    collect(scaled.logits, maxima_, threshold, candidates_);
    keep_mass(p * weigh_candidates(scaled));
    return;
  }
  const double target = p * sum_exp(scaled.logits, scaled.max, scaled.scale);
  for (const float depth : {6.0f, 12.0f, 24.0f, kInfinity}) {
    const float lowest = std::max(scaled.max - depth / scaled.scale, kLowest);
    collect(scaled.logits, maxima_, lowest, candidates_);
    if (weigh_candidates(scaled) >= target) break;
  }
  keep_mass(target);
}

double RowSampler::weigh_candidates(const Scaled& scaled) {
  double sum = 0;
  for (Candidate& c : candidates_) {
    c.weight = fast_exp(clamp_exponent(scaled.log_weight(c.logit)));
    sum += static_cast<double>(c.weight);
  }
  return sum;
}

// A quickselect by weight: the part of the candidates in which the sum crosses the target is halved
// until it is short enough to be sorted.
void RowSampler::keep_mass(double target) {
  constexpr std::ptrdiff_t kShort = 32;
  double sum = 0;  // of all before `begin`, which are kept
  auto begin = candidates_.begin();
  auto end = candidates_.end();
  while (end - begin > kShort) {
    const Candidate pivot = median(*begin, begin[(end - begin) / 2], end[-1]);
    const auto cut =
        std::partition(begin, end, [&pivot](const Candidate& c) { return is_before(c, pivot); });
    double mass = 0;
    for (auto it = begin; it != cut; ++it) mass += static_cast<double>(it->weight);
    if (sum + mass >= target) {
      end = cut;
    } else {
      // The pivot is the first of what is left, so that what is left becomes shorter.
      std::iter_swap(
          cut, std::find_if(cut, end, [&pivot](const Candidate& c) { return c.id == pivot.id; }));
      sum += mass + static_cast<double>(pivot.weight);
      begin = cut + 1;
      if (sum >= target) end = begin;
    }
  }
  std::sort(begin, end, is_before);
  for (; begin != end && sum < target; ++begin) sum += static_cast<double>(begin->weight);
  candidates_.erase(begin, candidates_.end());
}

}  // namespace quire::ops
