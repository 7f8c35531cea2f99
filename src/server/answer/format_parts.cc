#include "server/answer/format_parts.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace quire::server {
namespace {

// The members of a token in a chat's logprobs, without the end of the object.
void write_chat_token(JsonWriter& json, const Logprob& token, bool as_ids) {
  json.member("token", token_text(token, as_ids)).member("logprob", finite(token.logprob));
  json.key("bytes").begin_array();
  for (const char c : token.decoded_token) json.value(static_cast<unsigned char>(c));
  json.end_array();
}

// Under OpenAI's names for tokens that were guessed.
void write_draft_usage(JsonWriter& json, const DraftUsage& usage) {
  json.member("accepted_prediction_tokens", usage.accepted_tokens);
  json.member("rejected_prediction_tokens", usage.draft_tokens - usage.accepted_tokens);
  if (usage.drafts == 0) {
    json.null_member("mean_acceptance_length");
  } else {
    json.member("mean_acceptance_length",
                1 + static_cast<double>(usage.accepted_tokens) / static_cast<double>(usage.drafts));
  }
}

}  // namespace

void write_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object();
  json.member("prompt_tokens", usage.prompt_tokens);
  json.member("completion_tokens", usage.completion_tokens);
  json.member("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object();
  json.member("cached_tokens", usage.cached_tokens).end_object();
  json.key("completion_tokens_details").begin_object();
  json.member("reasoning_tokens", usage.reasoning_tokens);
  if (usage.drafts) write_draft_usage(json, *usage.drafts);
  json.end_object();
  json.end_object();
}

void write_stop_reason(JsonWriter& json, const std::string& reason,
                       const std::vector<std::string>& stop_strings) {
  if (reason.empty()) {
    json.null();
    return;
  }
  const bool is_string = std::ranges::find(stop_strings, reason) != stop_strings.end();
  int64_t id = 0;
  const char* end = reason.data() + reason.size();
  const auto [stopped, error] = std::from_chars(reason.data(), end, id);
  if (!is_string && error == std::errc() && stopped == end) {
    json.value(id);
  } else {
    json.value(reason);
  }
}

double finite(float logprob) {
  constexpr double kLeast = -9999.0;
  return std::max(static_cast<double>(logprob), kLeast);
}

std::string token_text(const Logprob& token, bool as_id) {
  return as_id ? "token_id:" + std::to_string(token.token_id) : token.decoded_token;
}

void write_chat_position(JsonWriter& json, const PositionLogprobs& position, bool as_ids) {
  if (position.empty()) return;
  json.begin_object();
  write_chat_token(json, position.front(), as_ids);
  json.key("top_logprobs").begin_array();
  for (size_t i = 1; i < position.size(); ++i) {
    json.begin_object();
    write_chat_token(json, position[i], as_ids);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_top_logprobs(JsonWriter& json, const PositionLogprobs& position, bool as_ids) {
  if (position.empty()) {
    json.null();
    return;
  }
  json.begin_object();
  std::vector<std::string> texts;  // several tokens may look alike: the first one counts
  for (const Logprob& token : position) {
    std::string text = token_text(token, as_ids);
    if (std::ranges::find(texts, text) != texts.end()) continue;
    json.member(text, finite(token.logprob));
    texts.push_back(std::move(text));
  }
  json.end_object();
}

void write_prompt_position(JsonWriter& json, const PositionLogprobs& position) {
  if (position.empty()) {
    json.null();
    return;
  }
  json.begin_object();
  for (auto token = position.begin(); token != position.end(); ++token) {
    // The prompt's own token may be among the most likely, too.
    const bool repeated = std::any_of(position.begin(), token, [&](const Logprob& earlier) {
      return earlier.token_id == token->token_id;
    });
    if (repeated) continue;
    json.key(std::to_string(token->token_id)).begin_object();
    json.member("logprob", finite(token->logprob)).member("rank", token->rank);
    json.member("decoded_token", token->decoded_token).end_object();
  }
  json.end_object();
}

}  // namespace quire::server
