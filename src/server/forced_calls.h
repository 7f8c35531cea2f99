#pragma once
// Whether the calls of an answer whose tool_choice forces one are what was asked for: of a tool
// that there is, with arguments that its parameters' schema allows.
//
// A model may write anything. A client that forces a call and gets one has no reason to check it,
// so a call that is not valid must be an error.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/output_parser.h"
#include "server/api/api_error.h"
#include "server/api/generation_request.h"

namespace quire::server {

class ForcedCalls {
 public:
  // Of a chat with ToolChoice::kRequired or kNamed.
  explicit ForcedCalls(const GenerationRequest& request);
  ~ForcedCalls();
  ForcedCalls(const ForcedCalls&) = delete;
  ForcedCalls& operator=(const ForcedCalls&) = delete;

  // `parser`, with an eye on what comes out of it: of the next choice.
  std::unique_ptr<OutputParser> watch(std::unique_ptr<OutputParser> parser);
  // The choice was cut short (max_tokens, a deadline): what it lacks is not the model's fault.
  void cut(size_t choice) { answers_[choice]->cut = true; }

  // What is wrong with the first choice that has ended and is not valid.
  std::optional<ApiError> error();

 private:
  struct Answer {
    std::vector<ToolCallDelta> calls{};  // whole
    bool cut = false;
    bool done = false;  // the only call that was allowed is complete
    bool ended = false;
    bool is_valid = false;  // it has ended and was looked at
  };
  class Watcher;

  ForcedCalls() = default;
  std::string wrong_with(const ToolCallDelta& call) const;

  Json tools_;
  std::string name_;                              // of the function; empty: any of tools_
  std::vector<std::shared_ptr<Answer>> answers_;  // by choice
};

}  // namespace quire::server
