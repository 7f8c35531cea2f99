#pragma once
// Where drafts come from: the tokens of a sequence go in, guesses of what follows them come out.
//
// Thread safety: one thread at a time. A proposer never changes an answer, so it may forget texts
// or propose nothing at any time.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/speculative_config.h"
#include "request/request.h"
#include "request/scheduled_batch.h"

namespace quire {

class Proposer {
 public:
  virtual ~Proposer() = default;

  // Adds a sequence; its tokens so far are the request's prompt. The id is not in use.
  virtual void add(SequenceId id, const Request& request) = 0;
  // Tokens that were generated after those that it has. The id must be in use, also for the calls
  // below.
  virtual void append(SequenceId id, std::span<const int32_t> token_ids) = 0;
  // Whether propose() would have any. Where it has none, nobody needs to wait for the newest token.
  virtual bool has_drafts(SequenceId id) const = 0;
  // At most `most`, >= 1, drafts of what follows the sequence's last token; often none. Either each
  // was a token of some sequence, or all are kDraftOfRunner.
  virtual std::vector<int32_t> propose(SequenceId id, size_t most) = 0;
  // The sequence has ended. Its id is then free.
  virtual void remove(SequenceId id) = 0;
};

// The proposer of a config that passed check_speculative_config().
std::unique_ptr<Proposer> make_proposer(const SpeculativeConfig& config);

// Whether the drafts are those of a model or a head, which the runner makes; and of a head.
bool drafts_with_model(const SpeculativeConfig& config);
bool drafts_with_head(const SpeculativeConfig& config);

// Throws Error naming the field of --speculative-config and what was expected.
void check_speculative_config(const SpeculativeConfig& config);

// The lengths that "ngram" looks for, with defaults filled in.
struct NgramLengths {
  int min = 0;
  int max = 0;
};
NgramLengths ngram_lengths(const SpeculativeConfig& config);

}  // namespace quire
