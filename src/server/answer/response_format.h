#pragma once
// Turns the engine's outputs for a request into the bytes for the client: Server-Sent Events, piece
// by piece, or one JSON body at the end.
//
// Thread safety: one thread at a time for each formatter.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "quire/request_output.h"
#include "quire/tokenizer.h"
#include "server/answer/body_source.h"
#include "server/api/api_error.h"
#include "server/api/generation_request.h"

namespace quire {
class OutputParser;
}  // namespace quire

namespace quire::server {

// What speculative decoding brought a request so far.
struct DraftUsage {
  int64_t drafts = 0;
  int64_t draft_tokens = 0;
  int64_t accepted_tokens = 0;  // of these
};

// Tokens of a request so far.
struct Usage {
  int64_t prompt_tokens = 0;  // over all prompts
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;           // of the prompts', found in the prefix cache
  int64_t reasoning_tokens = 0;        // of the completion's
  std::optional<DraftUsage> drafts{};  // if asked for
};

struct FormatContext {
  std::string id{};     // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;  // Unix time in seconds
  std::string model{};  // the served model's id
  // For an echo of token ids and for token texts; null where the model has no tokenizer. Must
  // outlive the formatter.
  const Tokenizer* tokenizer = nullptr;
  // A parser for one choice of a chat; called once for each. Not used for completions.
  std::function<std::unique_ptr<OutputParser>()> make_parser{};
};

class ResponseFormatter : public BodySource {
 public:
  // Call begin(), then push() for each output, then fail() or end(), and after end() next_piece()
  // while more follows. Each returns the bytes to send now, perhaps none.

  // Before the first output. Streamed chats: the event with the role, for each choice.
  virtual std::string begin() = 0;
  // `delta` (OutputKind::kDelta) belongs to the prompt of that index. An output that ended because
  // its deadline passed has finish_reason kLength and stop_reason "timeout". Throws ApiError where
  // that or another end but the model's own cut a call that the request forces.
  virtual std::string push(size_t prompt_index, RequestOutput delta) = 0;
  // After the last output of the last prompt. Streams: the usage if asked for, and [DONE]. Else the
  // body's first piece, which is the whole body unless more_follows().
  virtual std::string end() = 0;
  // Ends a stream with an error event. Without a stream: the error's body, which the caller sends
  // with the error's status.
  virtual std::string fail(const ApiError& error) = 0;

  // Whether no further output can change the answer: its requests can be aborted. push() their
  // outputs all the same.
  virtual bool done() const = 0;
  // Tokens pushed so far.
  virtual Usage usage() const = 0;
  // How the whole request ended, once every choice has: "stop", "length", "tool_calls", "timeout",
  // "abort"; empty before.
  virtual std::string finish_reason() const = 0;
};

inline constexpr const char* kEventStream = "text/event-stream; charset=utf-8";

// kEventStream or "application/json".
std::string content_type(const GenerationRequest& request);

// Copies what it needs of `request`.
std::unique_ptr<ResponseFormatter> make_formatter(const GenerationRequest& request,
                                                  FormatContext context);

}  // namespace quire::server
