#pragma once
// Drafts from the sequence itself: what followed its newest tokens when they last occurred (prompt
// lookup). Each sequence has an index (ngram_index.h says how large).
//
// Thread safety: one thread at a time.
#include <memory>
#include <unordered_map>
#include <vector>

#include "speculative/ngram_index.h"
#include "speculative/proposer.h"

namespace quire {

class NgramProposer : public Proposer {
 public:
  // 1 <= lengths.min <= lengths.max.
  explicit NgramProposer(NgramLengths lengths) : lengths_(lengths) {}

  void add(SequenceId id, const Request& request) override;
  void append(SequenceId id, std::span<const int32_t> token_ids) override;
  bool has_drafts(SequenceId id) const override;
  std::vector<int32_t> propose(SequenceId id, size_t most) override;
  void remove(SequenceId id) override;

 private:
  NgramLengths lengths_;
  std::unordered_map<SequenceId, speculative_internal::NgramIndex> indices_;
};

}  // namespace quire
