#pragma once
// Drafts that the runner makes with a model: here they are only places without ids.
//
// Thread safety: as Proposer.
#include <vector>

#include "speculative/proposer.h"

namespace quire {

class RunnerProposer : public Proposer {
 public:
  void add(SequenceId, const Request&) override {}
  void append(SequenceId, std::span<const int32_t>) override {}
  bool has_drafts(SequenceId) const override { return true; }
  std::vector<int32_t> propose(SequenceId, size_t most) override {
    return std::vector<int32_t>(most, kDraftOfRunner);
  }
  void remove(SequenceId) override {}
};

}  // namespace quire
