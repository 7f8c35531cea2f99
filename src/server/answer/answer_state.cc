#include "server/answer/answer_state.h"

#include <array>
#include <string_view>
#include <utility>

namespace quire::server {
namespace {

constexpr std::string_view kTimeout = "timeout";

}  // namespace

AnswerState::AnswerState(const GenerationRequest& request)
    : n_(static_cast<size_t>(request.sampling.n)),
      stop_strings_(request.sampling.stop),
      ends_(request.num_choices()),
      prompt_counted_(request.num_prompts()),
      cached_(request.num_prompts()),
      metrics_(request.num_prompts()) {
  if (request.return_draft_usage) usage_.drafts.emplace();
}

void AnswerState::count_prompt(size_t prompt_index, const RequestOutput& delta) {
  if (!prompt_counted_[prompt_index]) {
    prompt_counted_[prompt_index] = true;
    usage_.prompt_tokens += static_cast<int64_t>(delta.prompt_token_ids.size());
  }
  usage_.cached_tokens +=
      delta.num_cached_tokens - std::exchange(cached_[prompt_index], delta.num_cached_tokens);
  if (!usage_.drafts) return;
  const RequestMetrics& now = delta.metrics;
  const RequestMetrics before = std::exchange(metrics_[prompt_index], now);
  usage_.drafts->drafts += now.num_drafts - before.num_drafts;
  usage_.drafts->draft_tokens += now.num_draft_tokens - before.num_draft_tokens;
  usage_.drafts->accepted_tokens +=
      now.num_accepted_draft_tokens - before.num_accepted_draft_tokens;
}

void AnswerState::count_tokens(const CompletionOutput& output) {
  usage_.completion_tokens += static_cast<int64_t>(output.token_ids.size());
}

void AnswerState::end_choice(size_t choice, const std::string& finish_reason,
                             const CompletionOutput& output) {
  ends_[choice] = {finish_reason, output.stop_reason, output.steered_to_end};
  ++num_ended_;
}

std::string AnswerState::finish_reason() const {
  constexpr std::array<std::string_view, 5> kByRank = {"stop", "tool_calls", "length", kTimeout,
                                                       "abort"};
  if (!all_ended()) return "";
  size_t worst = 0;
  for (const End& end : ends_) {
    const bool timeout = end.finish_reason == "length" && end.stop_reason == kTimeout;
    const std::string_view reason = timeout ? kTimeout : std::string_view(end.finish_reason);
    for (size_t rank = worst + 1; rank < kByRank.size(); ++rank) {
      if (kByRank[rank] == reason) worst = rank;
    }
  }
  return std::string(kByRank[worst]);
}

}  // namespace quire::server
