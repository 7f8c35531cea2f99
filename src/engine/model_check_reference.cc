#include "engine/model_check_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quire {

std::vector<std::string> compare_prompts(const KnownAnswer& answer, const KnownAnswer& reference) {
  if (answer.prompt != reference.prompt) {
    return {"The known prompt is another text than in the reference: the chat template differs."};
  }
  const std::vector<int32_t>& ids = answer.prompt_token_ids;
  const std::vector<int32_t>& expected = reference.prompt_token_ids;
  const auto differ = std::ranges::mismatch(ids, expected);
  if (differ.in1 == ids.end() && differ.in2 == expected.end()) return {};
  const auto shown = [](auto it, auto end) {
    return it == end ? std::string("missing") : std::to_string(*it);
  };
  return {
      fmt::format("The known prompt has {} tokens; expected {}. Token {} is {}; expected {}: the "
                  "tokenizer differs.",
                  ids.size(), expected.size(), differ.in1 - ids.begin(),
                  shown(differ.in1, ids.end()), shown(differ.in2, expected.end()))};
}

std::vector<std::string> compare_answers(const KnownAnswer& answer,
                                         const ModelReference& reference) {
  const KnownAnswer& expected = reference.answer;
  const size_t count = std::min(answer.output_token_ids.size(), expected.output_token_ids.size());
  for (size_t i = 0; i < count; ++i) {
    const bool same_token = answer.output_token_ids[i] == expected.output_token_ids[i];
    const double gap = expected.logprobs[i] - expected.runner_up_logprobs[i];
    if (!same_token && gap <= reference.tolerance) return {};
    if (!same_token) {
      return {fmt::format("Output token {} is {}; expected {}.", i, answer.output_token_ids[i],
                          expected.output_token_ids[i])};
    }
    const double difference = std::abs(answer.logprobs[i] - expected.logprobs[i]);
    if (!(difference <= reference.tolerance)) {
      return {
          fmt::format("The log-probability of output token {} is {:.4f}; expected {:.4f}, "
                      "within {:g}.",
                      i, answer.logprobs[i], expected.logprobs[i], reference.tolerance)};
    }
  }
  if (answer.output_token_ids.size() != expected.output_token_ids.size()) {
    return {fmt::format("The answer has {} tokens; expected {}.", answer.output_token_ids.size(),
                        expected.output_token_ids.size())};
  }
  return {};
}

}  // namespace quire
