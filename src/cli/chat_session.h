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
  // `llm` and `interrupts` must outlive the session. `leave_at_once` ends the process; it is called
  // on another thread, when an answer is interrupted twice.
  ChatSession(AsyncLLM& llm, const Interrupts& interrupts, std::function<void()> leave_at_once,
              ChatOptions options, const SamplingParams& params, std::string adapter = "");

  enum class Outcome { kFinished, kLengthReached, kContextFull, kInterrupted };

  // Sends a message and passes the answer's text on as it comes. An answer that was interrupted is
  // kept as far as it came. Throws Error if the message cannot be sent; the conversation is then as
  // before.
  Outcome say(const std::string& message, const std::function<void(std::string_view)>& on_text);
  // Takes the last answer back and asks again. Throws Error if there is none.
  Outcome retry(const std::function<void(std::string_view)>& on_text);

  // Starts anew, with the same system message.
  void reset();
  // Sets the system message (empty: none) and starts anew.
  void set_system(const std::string& text);

  // About the last answer, if there is one, and the engine, a line each.
  std::string stats() const;

 private:
  Outcome answer(const std::function<void(std::string_view)>& on_text);
  // Throws Error where what was said before leaves no room for an answer.
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
