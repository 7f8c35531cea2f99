#include "runner/prompt_logprobs.h"

#include <algorithm>

namespace quire {

std::vector<PromptRows> prompt_rows(std::span<const StepSequence> sequences, int64_t max_rows) {
  std::vector<PromptRows> result;
  int64_t chunk_row = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto& [chunk, state, first] = sequences[i];
    if (state.params().prompt_logprobs) {
      const std::span<const int32_t> prompt = state.request->prompt_token_ids;
      // The row of position p predicts token p + 1, which has to be one of the prompt.
      const int64_t last = std::min(sequences[i].end(), state.num_prompt_tokens() - 1);
      for (int64_t begin = first; begin < last; begin += max_rows) {
        const int64_t num_rows = std::min(max_rows, last - begin);
        result.push_back({.sequence = i,
                          .first_row = chunk_row + begin - first,
                          .targets = prompt.subspan(static_cast<size_t>(begin + 1),
                                                    static_cast<size_t>(num_rows)),
                          .num_top = *state.params().prompt_logprobs});
      }
    }
    chunk_row += chunk.num_tokens;
  }
  return result;
}

}  // namespace quire
