#include "runner/host_sampler.h"

#include <cstdint>

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

}  // namespace

std::vector<ops::SampledToken> sample_rows(Stream& stream, const Tensor& logits,
                                           std::span<const LogitsRow> rows,
                                           const LogitsProcessorRegistry* processors) {
  std::vector<ops::SamplingRow> sampling;
  sampling.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].state->request->has_logits_processors) {
      const std::span<float> row(logits.row<float>(static_cast<int64_t>(i)),
                                 static_cast<size_t>(logits.dim(1)));
      call_logits_processors(rows[i], row, processors);
    }
    sampling.push_back(to_sampling_row(*rows[i].state, rows[i].num_tokens));
  }
  std::vector<ops::SampledToken> tokens(rows.size());
  ops::sample(stream, logits, sampling, tokens);
  return tokens;
}

}  // namespace quire
