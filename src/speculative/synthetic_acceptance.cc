#include "speculative/synthetic_acceptance.h"

namespace quire {
namespace {

double mean_length(double rate, int num_drafts) {
  double length = 1;
  double expected = 1;
  for (int i = 0; i < num_drafts; ++i) {
    expected *= rate;
    length += expected;
  }
  return length;
}

}  // namespace

std::optional<double> synthetic_rate(const SpeculativeConfig& config) {
  if (!config.synthetic_acceptance_length) return std::nullopt;
  // The mean grows with the rate: by bisection, to all bits.
  double low = 0;
  double high = 1;
  for (int i = 0; i < 60; ++i) {
    const double rate = (low + high) / 2;
    const bool is_short =
        mean_length(rate, config.num_speculative_tokens) < *config.synthetic_acceptance_length;
    (is_short ? low : high) = rate;
  }
  return (low + high) / 2;
}

void SyntheticProposer::add(SequenceId id, const Request& request) {
  newest_[id] = request.prompt_token_ids.back();
}

void SyntheticProposer::append(SequenceId id, std::span<const int32_t> token_ids) {
  if (!token_ids.empty()) newest_[id] = token_ids.back();
}

std::vector<int32_t> SyntheticProposer::propose(SequenceId id, size_t most) {
  return std::vector<int32_t>(most, newest_.at(id));
}

void SyntheticProposer::remove(SequenceId id) {
  newest_.erase(id);
}

}  // namespace quire
