#include "runner/sampling_rows.h"

#include <algorithm>
#include <limits>

namespace quire {

ops::SamplingRow to_sampling_row(const SequenceState& state, size_t num_tokens) {
  const SamplingParams& params = state.params();
  ops::SamplingRow row;
  row.temperature = static_cast<float>(params.temperature);
  row.top_k = params.top_k > 0 ? params.top_k : 0;
  // A double above 0 may round to 0, which would keep no token at all.
  row.top_p = std::max(static_cast<float>(params.top_p), std::numeric_limits<float>::min());
  row.min_p = static_cast<float>(params.min_p);
  row.repetition_penalty = static_cast<float>(params.repetition_penalty);
  row.presence_penalty = static_cast<float>(params.presence_penalty);
  row.frequency_penalty = static_cast<float>(params.frequency_penalty);
  row.seed = state.request->seed;
  row.index = state.index;
  row.position = num_tokens;
  row.prompt_ids = state.request->prompt_token_ids;
  row.output_ids = std::span(state.output_token_ids).first(num_tokens - row.prompt_ids.size());
  row.logit_bias = state.logit_bias;
  row.masked_ids = masked_ids(state, row.output_ids.size());
  row.num_logprobs = params.logprobs.value_or(-1);
  return row;
}

std::span<const int32_t> masked_ids(const SequenceState& state, size_t num_output) {
  if (static_cast<int64_t>(num_output) >= state.params().min_tokens) return {};
  return state.stop_ids;
}

bool adjusts_logits(const SequenceState& state, size_t num_tokens) {
  const SamplingParams& params = state.params();
  const size_t num_output = num_tokens - state.request->prompt_token_ids.size();
  return static_cast<float>(params.repetition_penalty) != 1 ||
         static_cast<float>(params.presence_penalty) != 0 ||
         static_cast<float>(params.frequency_penalty) != 0 || !state.logit_bias.empty() ||
         !masked_ids(state, num_output).empty();
}

bool needs_host_sampling(const SequenceState& state, size_t num_tokens) {
  const SamplingParams& params = state.params();
  return state.request->has_logits_processors ||
         (params.logprobs.has_value() && adjusts_logits(state, num_tokens));
}

TokenLogprobs to_token_logprobs(std::span<const ops::TokenLogprob> logprobs) {
  TokenLogprobs result;
  for (const ops::TokenLogprob& entry : logprobs) {
    result.token_ids.push_back(entry.token_id);
    result.logprobs.push_back(entry.logprob);
    result.ranks.push_back(entry.rank);
  }
  return result;
}

}  // namespace quire
