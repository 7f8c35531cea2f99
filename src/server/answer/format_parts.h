#pragma once
// Parts of answers of both kinds.
//
// Thread safety: pure functions.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "quire/request_output.h"
#include "server/answer/response_format.h"

namespace quire::server {

inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

// The value of "usage".
void write_usage(JsonWriter& json, const Usage& usage);

// The stop string; or a number, where it is the id of a stop token and no stop string of the
// request; null where empty.
void write_stop_reason(JsonWriter& json, const std::string& reason,
                       const std::vector<std::string>& stop_strings);

// JSON has no infinity: for a token that cannot be sampled, the number that vLLM gives in its
// place.
double finite(float logprob);

// How a token is shown in logprobs.
std::string token_text(const Logprob& token, bool as_id);

// An item of a chat's logprobs.content; nothing for an empty position.
void write_chat_position(JsonWriter& json, const PositionLogprobs& position, bool as_ids);

// An item of a completion's top_logprobs.
void write_top_logprobs(JsonWriter& json, const PositionLogprobs& position, bool as_ids);

// An item of vLLM's prompt_logprobs: null for an empty position, else an object by token id.
void write_prompt_position(JsonWriter& json, const PositionLogprobs& position);

}  // namespace quire::server
