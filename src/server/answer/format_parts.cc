#include "server/answer/format_parts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

namespace quire::server {
namespace {

constexpr std::array<bool, 256> make_escaped_bytes() {
  std::array<bool, 256> escaped{};
  for (size_t c = 0; c < 0x20; ++c) escaped[c] = true;
  escaped['"'] = true;
  escaped['\\'] = true;
  return escaped;
}

constexpr std::array<bool, 256> kEscapedBytes = make_escaped_bytes();

void append_escape(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
  }
}

// JSON has no infinity: a token that cannot be sampled gets vLLM's stand-in for it.
double finite(float logprob) {
  constexpr double kLeast = -9999.0;
  return std::max(static_cast<double>(logprob), kLeast);
}

Json bytes_of(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Json chat_logprob(const Logprob& token, bool as_ids) {
  Json entry;
  entry["token"] = token_text(token, as_ids);
  entry["logprob"] = finite(token.logprob);
  entry["bytes"] = bytes_of(token.decoded_token);
  return entry;
}

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

void append_escaped(std::string& out, std::string_view text) {
  size_t plain = 0;  // where the run begins that needs no escape
  for (size_t i = 0; i < text.size(); ++i) {
    if (!kEscapedBytes[static_cast<unsigned char>(text[i])]) continue;
    out.append(text, plain, i - plain);
    append_escape(out, text[i]);
    plain = i + 1;
  }
  out.append(text, plain);
}

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string sse_event(const Json& data) {
  return "data: " + dump(data) + "\n\n";
}

Json usage_json(const Usage& usage) {
  Json json;
  json["prompt_tokens"] = usage.prompt_tokens;
  json["completion_tokens"] = usage.completion_tokens;
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  json["prompt_tokens_details"]["cached_tokens"] = usage.cached_tokens;
  json["completion_tokens_details"]["reasoning_tokens"] = usage.reasoning_tokens;
  return json;
}

Json stop_reason_json(const std::string& reason, const std::vector<std::string>& stop_strings) {
  if (reason.empty()) return nullptr;
  if (std::find(stop_strings.begin(), stop_strings.end(), reason) != stop_strings.end()) {
    return reason;
  }
  int64_t id = 0;
  const char* end = reason.data() + reason.size();
  const auto [stopped, error] = std::from_chars(reason.data(), end, id);
  return error == std::errc() && stopped == end ? Json(id) : Json(reason);
}

std::string token_text(const Logprob& token, bool as_id) {
  return as_id ? "token_id:" + std::to_string(token.token_id) : token.decoded_token;
}

Json chat_logprobs(const std::vector<PositionLogprobs>& positions, bool as_ids) {
  Json content = Json::array();
  for (const PositionLogprobs& position : positions) {
    if (position.empty()) continue;
    Json entry = chat_logprob(position.front(), as_ids);
    Json& top = entry["top_logprobs"] = Json::array();
    for (size_t i = 1; i < position.size(); ++i) top.push_back(chat_logprob(position[i], as_ids));
    content.push_back(std::move(entry));
  }
  return content;
}

Json empty_completion_logprobs() {
  Json logprobs;
  for (const char* name : {"text_offset", "token_logprobs", "tokens", "top_logprobs"}) {
    logprobs[name] = Json::array();
  }
  return logprobs;
}

void append_completion_logprobs(Json& logprobs, const std::vector<PositionLogprobs>& positions,
                                const std::string& first, bool as_ids, int64_t& offset) {
  for (const PositionLogprobs& position : positions) {
    logprobs["text_offset"].push_back(offset);
    if (position.empty()) {
      logprobs["token_logprobs"].push_back(nullptr);
      logprobs["tokens"].push_back(first);
      logprobs["top_logprobs"].push_back(nullptr);
      offset += num_characters(first);
      continue;
    }
    const Logprob& token = position.front();
    logprobs["token_logprobs"].push_back(finite(token.logprob));
    logprobs["tokens"].push_back(token_text(token, as_ids));
    Json top = Json::object();
    for (const Logprob& other : position) {
      const std::string text = token_text(other, as_ids);
      if (!top.contains(text)) top[text] = finite(other.logprob);
    }
    logprobs["top_logprobs"].push_back(std::move(top));
    offset += num_characters(token.decoded_token);
  }
}

Json prompt_logprobs_json(const std::vector<PositionLogprobs>& positions) {
  Json list = Json::array();
  for (const PositionLogprobs& position : positions) {
    if (position.empty()) {
      list.push_back(nullptr);
      continue;
    }
    Json tokens;
    for (const Logprob& token : position) {
      Json& entry = tokens[std::to_string(token.token_id)];
      entry["logprob"] = finite(token.logprob);
      entry["rank"] = token.rank;
      entry["decoded_token"] = token.decoded_token;
    }
    list.push_back(std::move(tokens));
  }
  return list;
}

}  // namespace quire::server
