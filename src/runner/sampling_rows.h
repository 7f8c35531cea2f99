#pragma once
// How a sequence's parameters and history change its row of logits, for the samplers of the host
// and of the GPU.
//
// Thread safety: free functions.
#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/sampling.h"
#include "request/scheduled_batch.h"
#include "runner/sequence_table.h"

namespace quire {

// The sampling ops' arguments for the token behind the first `num_tokens` tokens of a sequence;
// these end in its output or with its prompt. Points into `state`.
ops::SamplingRow to_sampling_row(const SequenceState& state, size_t num_tokens);
// The same behind all tokens.
ops::SamplingRow to_sampling_row(const SequenceState& state);

// Ids that min_tokens forbids for the token behind the first `num_output` tokens of the output.
std::span<const int32_t> masked_ids(const SequenceState& state, size_t num_output);

// Whether penalties, biases or masks apply to the next token.
bool adjusts_logits(const SequenceState& state);

// Whether the host must sample the next token of a sequence on a GPU: if it has callbacks, which
// need the logits, or if it reports log-probabilities, which are of the unadjusted logits, while
// its logits are adjusted.
bool needs_host_sampling(const SequenceState& state);

// In the form that outputs have.
TokenLogprobs to_token_logprobs(std::span<const ops::TokenLogprob> logprobs);

}  // namespace quire
