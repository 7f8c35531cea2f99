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

// Ids that min_tokens forbids for the token behind the first `num_output` tokens of the output.
std::span<const int32_t> masked_ids(const SequenceState& state, size_t num_output);

// Whether the token behind the first `num_tokens` takes penalties, biases or masks.
bool adjusts_logits(const SequenceState& state, size_t num_tokens);

// Whether a GPU leaves that token to the host: callbacks see the logits there, and the
// log-probabilities that are reported are of logits as they were before they were adjusted.
bool needs_host_sampling(const SequenceState& state, size_t num_tokens);

// In the form that outputs have.
TokenLogprobs to_token_logprobs(std::span<const ops::TokenLogprob> logprobs);

}  // namespace quire
