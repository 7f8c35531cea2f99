#pragma once
// Drafts for measurements (SpeculativeConfig::synthetic_acceptance_length): any tokens, of which
// noise decides how many are kept (runner/synthetic_drafts.h).
//
// Thread safety: as Proposer; a pure function.
#include <optional>
#include <unordered_map>
#include <vector>

#include "speculative/proposer.h"

namespace quire {

// How often a draft, those before it being kept, has to be kept for chunks of
// num_speculative_tokens drafts to bring synthetic_acceptance_length tokens on average; nothing
// where that is not set. The mean is 1 + p + p^2 + ... + p^num_speculative_tokens.
std::optional<double> synthetic_rate(const SpeculativeConfig& config);

// Drafts the newest token again and again, as often as it may.
class SyntheticProposer : public Proposer {
 public:
  void add(SequenceId id, const Request& request) override;
  void append(SequenceId id, std::span<const int32_t> token_ids) override;
  bool has_drafts(SequenceId) const override { return true; }
  std::vector<int32_t> propose(SequenceId id, size_t most) override;
  void remove(SequenceId id) override;

 private:
  std::unordered_map<SequenceId, int32_t> newest_;
};

}  // namespace quire
