// Checks of a request, before EngineCore queues it.
#include <fmt/format.h>

#include "engine/engine_core.h"
#include "quire/error.h"

namespace quire {

void EngineCore::check_params(const SamplingParams& params) const {
  params.validate();
  const auto in_vocabulary = [this](const char* field, int32_t id) {
    if (id < 0 || id >= vocab_size()) {
      throw Error(fmt::format("{} has token id {}; expected 0 to {} (the model's vocabulary).",
                              field, id, vocab_size() - 1));
    }
  };
  for (int32_t id : params.stop_token_ids) in_vocabulary("stop_token_ids", id);
  for (const auto& [id, bias] : params.logit_bias) in_vocabulary("logit_bias", id);
  if (!params.stop.empty() && !tokenizer_) {
    throw Error("stop strings need a tokenizer, and this model has none; use stop_token_ids.");
  }
}

void EngineCore::check_prompt(const std::vector<int32_t>& token_ids) const {
  const auto num_tokens = static_cast<int64_t>(token_ids.size());
  const int64_t max_model_len = *setup_.config.max_model_len;
  if (num_tokens == 0) throw Error("The prompt is empty; expected at least one token.");
  if (num_tokens >= max_model_len) {
    throw Error(
        fmt::format("The prompt has {} tokens; expected fewer than max_model_len, which is {}.",
                    num_tokens, max_model_len));
  }
  for (size_t i = 0; i < token_ids.size(); ++i) {
    const int32_t id = token_ids[i];
    if (id < 0 || id >= vocab_size()) {
      throw Error(
          fmt::format("Prompt token {} has id {}; expected 0 to {} (the model's vocabulary).", i,
                      id, vocab_size() - 1));
    }
  }
}

void EngineCore::check_room(const Request& facts, const AnswerLanguage& language) const {
  const int64_t room = room_for_answer(facts, *setup_.config.max_model_len);
  const auto shortest = static_cast<int64_t>(language.tokens_to_end);
  if (shortest <= room) return;
  throw Error(fmt::format(
      "structured_output: an answer takes at least {} tokens, but {} leaves room for {}.", shortest,
      facts.params.max_tokens == room ? "max_tokens" : "max_model_len", room));
}

}  // namespace quire
