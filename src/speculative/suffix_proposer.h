#pragma once
// Drafts from suffix trees: one of the sequence itself, and those of answers to earlier requests of
// the same cache salt. The drafts with the better score are taken.
//
// Bounded: the tree of a sequence is begun anew beyond 64 MiB, the largest where those of all
// sequences take more than 1 GiB together, and earlier answers take 256 MiB at most. Thread safety:
// one thread at a time.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "quire/speculative_config.h"
#include "speculative/proposer.h"
#include "speculative/suffix_history.h"
#include "speculative/suffix_tree.h"

namespace quire {

struct SuffixMemory {
  size_t sequence = size_t{64} << 20;  // bytes of a sequence's tree
  size_t sequences = size_t{1} << 30;  // of all of them together
  size_t history = size_t{256} << 20;  // of earlier answers
};

class SuffixProposer : public Proposer {
 public:
  // A config that passed check_speculative_config().
  explicit SuffixProposer(const SpeculativeConfig& config, SuffixMemory memory = {});

  void add(SequenceId id, const Request& request) override;
  void append(SequenceId id, std::span<const int32_t> token_ids) override;
  bool has_drafts(SequenceId id) const override { return !drafts(id, 1).empty(); }
  std::vector<int32_t> propose(SequenceId id, size_t most) override { return drafts(id, most); }
  void remove(SequenceId id) override;

  // Of the sequences' trees.
  size_t bytes() const { return bytes_; }

 private:
  struct State {
    std::string salt;
    speculative_internal::SuffixTree tree;
    std::vector<int32_t> newest;  // the prompt's last tokens, as many as a path has, and the answer
    size_t num_prompt_tokens = 0;  // of these
  };

  std::vector<int32_t> drafts(SequenceId id, size_t most) const;
  void extend_tree(State& state, std::span<const int32_t> token_ids);
  void begin_anew(State& state);
  State& largest();

  SuffixMemory memory_;
  size_t bytes_ = 0;
  size_t depth_;
  double factor_;
  double min_token_prob_;
  std::optional<speculative_internal::SuffixHistory> history_;  // none: not wanted
  std::unordered_map<SequenceId, State> states_;
};

}  // namespace quire
