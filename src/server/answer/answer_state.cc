#include "server/answer/answer_state.h"

#include <array>
#include <string_view>
#include <utility>

namespace quire::server {
namespace {

constexpr std::string_view kTimeout = "timeout";

}  // namespace

AnswerState::AnswerState(size_t num_prompts, int n, std::vector<std::string> stop_strings)
    : n_(static_cast<size_t>(n)),
      stop_strings_(std::move(stop_strings)),
      ends_(num_prompts * n_),
      prompt_counted_(num_prompts),
      cached_(num_prompts) {}

void AnswerState::count_prompt(size_t prompt_index, const RequestOutput& delta) {
  if (!prompt_counted_[prompt_index]) {
    prompt_counted_[prompt_index] = true;
    usage_.prompt_tokens += static_cast<int64_t>(delta.prompt_token_ids.size());
  }
  usage_.cached_tokens +=
      delta.num_cached_tokens - std::exchange(cached_[prompt_index], delta.num_cached_tokens);
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
