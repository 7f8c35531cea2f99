#pragma once
// Applies each sequence's sampling parameters and history to its row of logits.
//
// Thread safety: free functions; one thread at a time on a stream.
#include <span>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "ops/sampling.h"
#include "request/logits_processors.h"
#include "request/scheduled_batch.h"
#include "runner/sequence_table.h"

namespace quire {

// What the sampling ops are told of the token behind the first `num_tokens` of a sequence, which
// end in its output or with its prompt. Points into `state`.
ops::SamplingRow to_sampling_row(const SequenceState& state, size_t num_tokens);
// The same behind all of them.
ops::SamplingRow to_sampling_row(const SequenceState& state);

// Ids that min_tokens keeps from being the token behind the first `num_output` of a sequence's
// output.
std::span<const int32_t> masked_ids(const SequenceState& state, size_t num_output);

// Whether the next token takes penalties, biases or masks.
bool adjusts_logits(const SequenceState& state);

// Whether a GPU leaves the next token to the host: callbacks see the logits there, and the
// log-probabilities that are reported are of logits as they were before they were adjusted.
bool needs_host_sampling(const SequenceState& state);

// A row of logits: of the token behind the first `num_tokens` of a sequence.
struct LogitsRow {
  const SequenceState* state = nullptr;
  size_t num_tokens = 0;
};

// logits float32[R, vocab], changed in place; rows.size() == R. `processors` has the callbacks of
// requests that have some; null: of none.
std::vector<ops::SampledToken> sample_tokens(Stream& stream, const Tensor& logits,
                                             std::span<const LogitsRow> rows,
                                             const LogitsProcessorRegistry* processors);

TokenLogprobs to_token_logprobs(std::span<const ops::TokenLogprob> logprobs);

}  // namespace quire
