#pragma once
// State of an answer, of either kind, while the engine's outputs come in: how many tokens, and how
// each choice ended.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <string>
#include <vector>

#include "server/answer/response_format.h"

namespace quire::server {

class AnswerState {
 public:
  explicit AnswerState(const GenerationRequest& request);

  size_t num_choices() const { return ends_.size(); }
  // The index of a choice among those of all prompts.
  size_t choice_index(size_t prompt_index, const CompletionOutput& output) const {
    return prompt_index * n_ + static_cast<size_t>(output.index);
  }

  // Counts the prompt's tokens, only once, and what the engine has counted for it since.
  void count_prompt(size_t prompt_index, const RequestOutput& delta);
  void count_tokens(const CompletionOutput& output);
  void count_reasoning(int64_t num_tokens) { usage_.reasoning_tokens += num_tokens; }
  const Usage& usage() const { return usage_; }

  // The choice ended with `output`: with "stop", "length", "tool_calls" or "abort". Called once.
  void end_choice(size_t choice, const std::string& finish_reason, const CompletionOutput& output);
  bool ended(size_t choice) const { return !ends_[choice].finish_reason.empty(); }
  bool all_ended() const { return num_ended_ == ends_.size(); }
  // How it ended; empty while it has not.
  const std::string& finish_reason_of(size_t choice) const { return ends_[choice].finish_reason; }
  const std::string& stop_reason_of(size_t choice) const { return ends_[choice].stop_reason; }
  // Whether its constraint ended the answer earlier than the model would have.
  bool steered_to_end(size_t choice) const { return ends_[choice].steered; }
  const std::vector<std::string>& stop_strings() const { return stop_strings_; }
  // Of all choices together: the least regular one, "" while one has not ended.
  std::string finish_reason() const;

 private:
  struct End {
    std::string finish_reason{};
    std::string stop_reason{};
    bool steered = false;
  };

  size_t n_;
  std::vector<std::string> stop_strings_;
  std::vector<End> ends_;
  size_t num_ended_ = 0;
  std::vector<bool> prompt_counted_;
  std::vector<int64_t> cached_;          // of each prompt
  std::vector<RequestMetrics> metrics_;  // of each prompt
  Usage usage_;
};

}  // namespace quire::server
