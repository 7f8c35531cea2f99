#include "cli/chat_session.h"

#include <fmt/format.h>

#include <atomic>
#include <optional>

#include "cli/text_format.h"
#include "quire/error.h"

namespace quire::cli {

ChatSession::ChatSession(AsyncLLM& llm, const Interrupts& interrupts, ChatOptions options,
                         const SamplingParams& params)
    : llm_(llm),
      interrupts_(interrupts),
      options_(std::move(options)),
      params_(params),
      chat_(options_.new_chat()) {}

ChatSession::Outcome ChatSession::say(const std::string& message,
                                      const std::function<void(std::string_view)>& on_text) {
  const Json before = chat_.messages;
  chat_.messages.push_back({{"role", "user"}, {"content", message}});
  try {
    return answer(on_text);
  } catch (...) {
    chat_.messages = before;
    throw;
  }
}

ChatSession::Outcome ChatSession::retry(const std::function<void(std::string_view)>& on_text) {
  if (chat_.messages.empty() || chat_.messages.back()["role"] != "assistant") {
    throw Error("there is no answer yet that could be tried again");
  }
  const Json before = chat_.messages;
  chat_.messages.erase(chat_.messages.size() - 1);
  try {
    return answer(on_text);
  } catch (...) {
    chat_.messages = before;
    throw;
  }
}

ChatSession::Outcome ChatSession::answer(const std::function<void(std::string_view)>& on_text) {
  RequestStream stream = llm_.chat(chat_, params_);
  std::atomic<bool> interrupted = false;
  const InterruptHandler handler(interrupts_, [&] {
    // Who presses Ctrl-C again will not wait for the step to end.
    if (interrupted.exchange(true)) exit_interrupted();
    stream.cancel();
  });
  std::string text;
  std::optional<FinishReason> reason;
  last_ = {};
  while (std::optional<RequestOutput> output = stream.next()) {
    last_.prompt_tokens = static_cast<int64_t>(output->prompt_token_ids.size());
    last_.cached_tokens = output->num_cached_tokens;
    last_.metrics = output->metrics;
    for (const CompletionOutput& completion : output->outputs) {
      last_.output_tokens += static_cast<int64_t>(completion.token_ids.size());
      text += completion.text;
      if (!completion.text.empty()) on_text(completion.text);
      if (completion.finish_reason) reason = completion.finish_reason;
    }
  }
  chat_.messages.push_back({{"role", "assistant"}, {"content", text}});
  if (interrupted) return Outcome::kInterrupted;
  return reason == FinishReason::kLength ? Outcome::kLengthReached : Outcome::kFinished;
}

void ChatSession::reset() {
  chat_ = options_.new_chat();
  last_ = {};
}

void ChatSession::set_system(const std::string& text) {
  options_.system = text;
  reset();
}

std::string ChatSession::stats() const {
  const EngineStats stats = llm_.stats();
  const double decode_s = last_.metrics.total_s - last_.metrics.ttft_s;
  const double rate = decode_s > 0 ? static_cast<double>(last_.output_tokens - 1) / decode_s : 0;
  return fmt::format(
      "last answer: {} prompt tokens ({} of them cached), {} output tokens, first token after "
      "{:.0f} ms, "
      "{:.1f} tokens/s\n"
      "conversation: {} messages, at most {} tokens\n"
      "engine: {} prompt and {} output tokens computed, {:.0f} % of the KV cache in use\n",
      with_commas(last_.prompt_tokens), with_commas(last_.cached_tokens),
      with_commas(last_.output_tokens), 1e3 * last_.metrics.ttft_s, rate, chat_.messages.size(),
      with_commas(llm_.max_model_len()), with_commas(stats.prompt_tokens),
      with_commas(stats.generation_tokens), 100 * stats.kv_cache_usage);
}

}  // namespace quire::cli
