#pragma once
// A checked call of /v1/chat/completions or /v1/completions.
//
// Thread safety: plain values and free functions.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parsers/tool_parser_prompt.h"  // ToolChoice
#include "quire/sampling_params.h"
#include "server/api/json_body.h"
#include "server/api/model_info.h"
#include "server/api/owned_chat.h"

namespace quire::server {

class ApiDescription;

enum class RequestKind { kChat, kCompletion };

struct GenerationRequest {
  RequestKind kind = RequestKind::kCompletion;
  std::string model{};    // as the client named it; the served model's id where it did not
  std::string adapter{};  // the adapter that the client named, which is then `model`; empty: none

  // Completions: one or more prompts, each of text or token ids.
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts{};
  bool add_special_tokens = true;  // when a text prompt is encoded; chats: false by default
  bool echo = false;               // the answer's text opens with the prompt, or the last message

  // Chats. Messages are as templates expect them: parts of text joined, the developer's role given
  // as system, arguments of tool calls as objects.
  OwnedChat chat{};
  bool continue_final_message = false;
  ToolChoice tool_choice = ToolChoice::kNone;
  std::string tool_name{};  // of kNamed
  // The schema of each tool's parameters as the client wrote it; empty where it gave none.
  std::vector<std::string> tool_parameters{};
  bool parallel_tool_calls = true;
  bool include_reasoning = true;

  SamplingParams sampling{};
  std::string constraint_field{};  // the field that sampling.structured_output is of
  // Whether the client gave max_tokens. If not, it is a default, which may be more than fits behind
  // the prompt.
  bool gave_max_tokens = false;
  // Chats: whether "logprobs" was true, and how many alternatives to show (sampling.logprobs).
  // Completions: whether "logprobs" was given.
  bool logprobs = false;
  // Whether prompt_logprobs was asked for. An echo with logprobs also sets the one of `sampling`.
  bool prompt_logprobs = false;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;  // in logprobs: "token_id:123" for the text
  bool return_draft_usage = false;          // in the usage: what speculative decoding brought

  bool stream = false;
  bool include_usage = false;           // a last event with the usage
  bool continuous_usage_stats = false;  // the usage so far in every event
  bool resumable = false;               // events have ids, and the client may come back

  int64_t priority = 0;  // lower goes first
  std::string cache_salt{};
  std::string user{};
  std::optional<double> timeout_s{};  // the deadline, from arrival
  std::string request_id{};           // the client's own; empty: none given

  // For the log, in sentences: unknown fields whose names look like a known one.
  std::vector<std::string> warnings{};

  // Outputs in all: prompts times n; chats have one prompt.
  size_t num_prompts() const { return kind == RequestKind::kChat ? 1 : prompts.size(); }
  size_t num_choices() const { return num_prompts() * static_cast<size_t>(sampling.n); }
};

// The request that `body` describes. Throws ApiError, naming the parameter: 404 for a model that is
// not served; 400 for what is no JSON object (parse_object_body()), for what the API's schema
// refuses, for what quire cannot do (images, a suffix, ...) and for fields that contradict each
// other.
GenerationRequest parse_chat_request(std::string_view body, const ModelInfo& model,
                                     const ApiDescription& api);
GenerationRequest parse_completion_request(std::string_view body, const ModelInfo& model,
                                           const ApiDescription& api);

}  // namespace quire::server
