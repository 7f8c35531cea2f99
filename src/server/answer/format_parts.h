#pragma once
// The pieces that answers of both kinds are made of.
//
// Thread safety: pure functions.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/request_output.h"
#include "server/answer/response_format.h"
#include "server/api/json_body.h"

namespace quire::server {

// Appends `text`, which is valid UTF-8, as it stands between the quotes of a JSON string: the same
// bytes that Json::dump() gives.
void append_escaped(std::string& out, std::string_view text);

// JSON in one line; bytes that are no valid UTF-8 become U+FFFD.
std::string dump(const Json& value);

// "data: {...}\n\n".
std::string sse_event(const Json& data);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

Json usage_json(const Usage& usage);

// The string, or the id as a number where it is no stop string of the request; null where empty.
Json stop_reason_json(const std::string& reason, const std::vector<std::string>& stop_strings);

// How a token is shown in logprobs.
std::string token_text(const Logprob& token, bool as_id);

// The items of a chat's logprobs.content.
Json chat_logprobs(const std::vector<PositionLogprobs>& positions, bool as_ids);

// Appends to a completion's logprobs. An empty position, the first of a
// prompt, has only its token, which `first` names. `offset` is that of the next token's text, in
// characters.
Json empty_completion_logprobs();
void append_completion_logprobs(Json& logprobs, const std::vector<PositionLogprobs>& positions,
                                const std::string& first, bool as_ids, int64_t& offset);

// vLLM's prompt_logprobs: null for an empty position, else by token id.
Json prompt_logprobs_json(const std::vector<PositionLogprobs>& positions);

}  // namespace quire::server
