#pragma once
// One conversation: what was said, and the answers as they stream.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cli/options/chat_options.h"
#include "cli/terminal/interrupts.h"
#include "quire/async_llm.h"

namespace quire::cli {

class ChatSession {
 public:
  // `llm` and `interrupts` must outlive the session. `leave_at_once` ends the process; another
  // thread calls it when an answer is interrupted twice.
  ChatSession(AsyncLLM& llm, const Interrupts& interrupts, std::function<void()> leave_at_once,
              ChatOptions options, const SamplingParams& params, std::string adapter = "");

  enum class Outcome { kFinished, kLengthReached, kContextFull, kInterrupted };

  // Sends a message and passes on the answer's text as it comes. An interrupted answer is kept as
  // far as it came. Throws Error if the message cannot be sent; the conversation is then unchanged.
  Outcome say(const std::string& message, const std::function<void(std::string_view)>& on_text);
  // Removes the last answer and asks again. Throws Error if there is none.
  Outcome retry(const std::function<void(std::string_view)>& on_text);

  // Starts anew, with the same system message.
  void reset();
  // Sets the system message (empty: none) and starts anew.
  void set_system(const std::string& text);

  // A line about the last answer, if there is one, and a line about the engine.
  std::string stats() const;

 private:
  Outcome answer(const std::function<void(std::string_view)>& on_text);
  // Throws Error if the conversation so far leaves no room for an answer.
  RequestStream ask();

  AsyncLLM& llm_;
  const Interrupts& interrupts_;
  std::function<void()> leave_at_once_;
  ChatOptions options_;
  SamplingParams params_;
  std::string adapter_;  // that answers; empty: none
  ChatInput chat_;

  struct LastAnswer {
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;
    int64_t output_tokens = 0;
    RequestMetrics metrics;
  };
  std::optional<LastAnswer> last_;
};

}  // namespace quire::cli
