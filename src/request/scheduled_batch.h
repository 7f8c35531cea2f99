#pragma once
// What the scheduler tells the runner to do in one step, and what comes back: plain data.
//
// The runner keeps a copy of each running sequence's tokens and block table, so a step carries only
// what is new. Steps run in the order in which they were scheduled. A sequence may be scheduled for
// step N+1 while its token of step N is not yet known to the scheduler: the runner, which
// appends the tokens it samples to its own copy, has it by the time step N+1 starts.
// No callbacks and no pointers but to a request's facts: request/batch_encoding.h makes bytes of
// it. Thread safety: immutable once submitted.
#include <cstdint>
#include <memory>
#include <vector>

#include "request/request.h"

namespace quire {

using SequenceId = uint64_t;

// A sequence that the runner does not know (yet, or any more, after a preemption).
struct NewSequence {
  SequenceId id = 0;
  std::shared_ptr<const Request> request;  // never null
  uint32_t index = 0;                      // within n
  std::vector<int32_t> output_token_ids;   // generated before a preemption
};

struct ScheduledSequence {
  SequenceId id = 0;
  int64_t num_computed_tokens = 0;     // tokens already in the KV cache: the chunk starts here
  int64_t num_tokens = 0;              // the chunk's length, >= 1
  bool samples = false;                // the chunk reaches the last token: sample the next one
  std::vector<int32_t> new_block_ids;  // appended to the block table
  bool operator==(const ScheduledSequence&) const = default;
};

struct ScheduledBatch {
  uint64_t step = 0;
  std::vector<SequenceId> removed;  // finished, aborted or preempted: forget these first
  std::vector<NewSequence> added;   // then add these, with empty block tables
  // Chunks of one token first. In each layer, the keys and values of all must be written before any
  // are read: a sequence may share blocks that another one fills in this step.
  std::vector<ScheduledSequence> sequences;
  int64_t num_tokens = 0;  // over all sequences

  bool empty() const { return sequences.empty(); }
};

struct TokenLogprobs {
  std::vector<int32_t> token_ids;  // the actual token first, then the best in order
  std::vector<float> logprobs;
  std::vector<int32_t> ranks;  // 1: the most likely
};

struct SequenceOutput {
  SequenceId id = 0;
  int32_t token_id = -1;   // -1 if the chunk did not sample
  TokenLogprobs logprobs;  // if asked for
  std::vector<TokenLogprobs>
      prompt_logprobs;  // of the prompt tokens after each of this chunk's, if asked for
};

struct StepOutput {
  uint64_t step = 0;
  double gpu_s = 0;                       // that the GPU worked on it; 0 on the CPU
  std::vector<SequenceOutput> sequences;  // in the batch's order
};

}  // namespace quire
