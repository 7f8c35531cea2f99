#include "cli/chat_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "cli/terminal/text_format.h"
#include "quire/error.h"

namespace quire::cli {

ChatSession::ChatSession(AsyncLLM& llm, const Interrupts& interrupts,
                         std::function<void()> leave_at_once, ChatOptions options,
                         const SamplingParams& params, std::string adapter)
    : llm_(llm),
      interrupts_(interrupts),
      leave_at_once_(std::move(leave_at_once)),
      options_(std::move(options)),
      params_(params),
      adapter_(std::move(adapter)),
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

RequestStream ChatSession::ask() {
  try {
    return llm_.chat(chat_, params_, {.output_kind = OutputKind::kDelta, .lora = adapter_});
  } catch (const EngineFailure&) {
    throw;
  } catch (const Error&) {
    // A first message that is too long is no shorter after /reset.
    const auto is_answer = [](const Json& message) { return message["role"] == "assistant"; };
    if (std::none_of(chat_.messages.begin(), chat_.messages.end(), is_answer)) throw;
    RenderedChat prompt = llm_.chat_template().render_marked(chat_);
    if (llm_.config().parse_special_tokens) prompt.from_messages.clear();
    const auto length = static_cast<int64_t>(
        llm_.tokenizer().encode(prompt.text, prompt.from_messages, false).size());
    if (length < llm_.max_model_len()) throw;
    throw Error(
        fmt::format("the conversation is full: with this message it has {} tokens and the model "
                    "takes fewer than {} (max_model_len); /reset starts a new one",
                    with_commas(length), with_commas(llm_.max_model_len())));
  }
}

ChatSession::Outcome ChatSession::answer(const std::function<void(std::string_view)>& on_text) {
  RequestStream stream = ask();
  std::atomic<bool> interrupted = false;
  const InterruptHandler handler(interrupts_, [&] {
    // A second Ctrl-C does not wait for the step to end.
    if (interrupted.exchange(true)) leave_at_once_();
    stream.cancel();
  });
  std::string text;
  std::optional<FinishReason> reason;
  LastAnswer last;
  while (std::optional<RequestOutput> output = stream.next()) {
    // Outputs after the first leave the prompt out.
    if (!output->prompt_token_ids.empty()) {
      last.prompt_tokens = static_cast<int64_t>(output->prompt_token_ids.size());
    }
    last.cached_tokens = output->num_cached_tokens;
    last.metrics = output->metrics;
    if (!output->error.empty()) throw Error(output->error);
    for (const CompletionOutput& completion : output->outputs) {
      last.output_tokens += static_cast<int64_t>(completion.token_ids.size());
      text += completion.text;
      if (!completion.text.empty()) on_text(completion.text);
      if (completion.finish_reason) reason = completion.finish_reason;
    }
  }
  chat_.messages.push_back({{"role", "assistant"}, {"content", text}});
  last_ = last;
  if (interrupted) return Outcome::kInterrupted;
  if (reason != FinishReason::kLength) return Outcome::kFinished;
  const bool full = last.prompt_tokens + last.output_tokens >= llm_.max_model_len();
  return full ? Outcome::kContextFull : Outcome::kLengthReached;
}

void ChatSession::reset() {
  chat_ = options_.new_chat();
  last_.reset();
}

void ChatSession::set_system(const std::string& text) {
  options_.system = text;
  reset();
}

std::string ChatSession::stats() const {
  std::string answer = "last answer: there is none yet\n";
  if (last_) {
    const double decode_s = last_->metrics.total_s - last_->metrics.ttft_s;
    const double rate = decode_s > 0 ? static_cast<double>(last_->output_tokens - 1) / decode_s : 0;
    answer = fmt::format(
        "last answer: {} prompt tokens ({} of them cached), {} output tokens, first token after "
        "{:.0f} ms, {:.1f} tokens/s\n",
        with_commas(last_->prompt_tokens), with_commas(last_->cached_tokens),
        with_commas(last_->output_tokens), 1e3 * last_->metrics.ttft_s, rate);
  }
  const EngineStats stats = llm_.stats();
  return answer +
         fmt::format(
             "conversation: {} messages, at most {} tokens\n"
             "engine: {} prompt and {} output tokens computed, {:.0f} % of the KV cache in use\n",
             chat_.messages.size(), with_commas(llm_.max_model_len()),
             with_commas(stats.prompt_tokens), with_commas(stats.generation_tokens),
             100 * stats.kv_cache_usage);
}

}  // namespace quire::cli
