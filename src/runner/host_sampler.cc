#include "runner/host_sampler.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "runner/sampling_rows.h"

namespace quire {
namespace {

void call_logits_processors(const LogitsRow& row, std::span<float> logits,
                            const LogitsProcessorRegistry* registry) {
  const auto processors =
      registry == nullptr ? nullptr : registry->find(row.state->request->number);
  if (processors == nullptr) return;
  std::vector<int32_t> scratch;
  const auto token_ids = row.state->tokens().slice(0, row.num_tokens, scratch);
  for (const LogitsProcessor& processor : *processors) processor(token_ids, logits);
}

using RowMasks = std::vector<std::unique_ptr<RowMask>>;

// Null for rows where all tokens may come. With `drafting` the masks do not take the tokens: what
// is sampled is a guess.
RowMasks make_row_masks(Stream& stream, std::span<const LogitsRow> rows, TokenMasks* masks,
                        bool drafting = false) {
  RowMasks result(rows.size());
  std::vector<size_t> constrained;
  for (size_t i = 0; i < rows.size() && masks != nullptr; ++i) {
    if (rows[i].state->request->is_constrained) constrained.push_back(i);
  }
  if (constrained.empty()) return result;
  stream.pool().parallel_for(static_cast<int64_t>(constrained.size()), [&](int64_t task, int) {
    const size_t i = constrained[static_cast<size_t>(task)];
    const SequenceState& state = *rows[i].state;
    const size_t num_output = rows[i].num_tokens - state.request->prompt_token_ids.size();
    result[i] =
        masks->at(*state.request, state.index, std::span(state.output_token_ids).first(num_output),
                  drafting || rows[i].has_drafts);
  });
  return result;
}

// Tells the mask its row's token, and samples another one if the mask refuses it because the answer
// could then not end in time. `logits` of a row with a mask are unchanged.
void settle_with_mask(Stream& stream, const Tensor& logits, RowMask& mask, ops::SamplingRow row,
                      ops::SampledToken& token) {
  if (token.token_id == ops::kNoToken || mask.take(token.token_id)) return;
  row.allowed = mask.allowed();
  ops::sample(stream, logits, std::span(&row, 1), std::span(&token, 1));
  if (token.token_id != ops::kNoToken) mask.take(token.token_id);
}

}  // namespace

std::vector<ops::SampledToken> sample_rows(Stream& stream, const Tensor& logits,
                                           std::span<const LogitsRow> rows,
                                           const RequestHooks& hooks) {
  const RowMasks masks = make_row_masks(stream, rows, hooks.masks);
  std::vector<ops::SamplingRow> sampling;
  sampling.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].state->request->has_logits_processors) {
      const std::span<float> row(logits.row<float>(static_cast<int64_t>(i)),
                                 static_cast<size_t>(logits.dim(1)));
      // As a task of its own, which who watches the rank sees: callbacks may take long.
      stream.pool().parallel_for(
          1, [&](int64_t, int) { call_logits_processors(rows[i], row, hooks.processors); });
    }
    sampling.push_back(to_sampling_row(*rows[i].state, rows[i].num_tokens));
    if (masks[i]) sampling.back().allowed = masks[i]->allowed();
  }
  std::vector<ops::SampledToken> tokens(rows.size());
  ops::sample(stream, logits, sampling, tokens);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!masks[i]) continue;
    const auto row = static_cast<int64_t>(i);
    settle_with_mask(stream, logits.rows(row, row + 1), *masks[i], sampling[i], tokens[i]);
  }
  return tokens;
}

void sample_drafts(Stream& stream, const Tensor& logits, std::span<const LogitsRow> rows,
                   TokenMasks* masks, std::span<int32_t> ids) {
  const RowMasks row_masks = make_row_masks(stream, rows, masks, true);
  std::vector<ops::SamplingRow> sampling;
  sampling.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    sampling.push_back(to_sampling_row(*rows[i].state, rows[i].num_tokens));
    sampling.back().num_logprobs = -1;
    if (row_masks[i]) sampling.back().allowed = row_masks[i]->allowed();
  }
  std::vector<ops::SampledToken> tokens(rows.size());
  ops::sample(stream, logits, sampling, tokens);
  for (size_t i = 0; i < rows.size(); ++i) ids[i] = std::max(tokens[i].token_id, 0);
}

}  // namespace quire
