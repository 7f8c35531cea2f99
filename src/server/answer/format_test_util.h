#pragma once
// Answers to compare: the sum of a stream's events, and outputs as an engine gives them.
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/output_parser.h"
#include "server/answer/response_format.h"
#include "server/api/api_test_util.h"

namespace quire::server {

inline FormatContext test_context(OutputParserConfig parser = {}) {
  FormatContext context;
  context.id = "chatcmpl-1";
  context.created = 1700000000;
  context.model = "lexicon";
  context.make_parser = [parser] {
    OutputParserConfig own = parser;
    own.next_tool_call_id = tool_call_ids(7);
    return make_output_parser(std::move(own));
  };
  return context;
}

// One output of one choice: `text` of as many tokens.
inline RequestOutput output_of(std::string text, std::vector<int32_t> token_ids = {1},
                               std::optional<FinishReason> finish_reason = {}) {
  RequestOutput output;
  output.outputs.resize(1);
  output.outputs[0].text = std::move(text);
  output.outputs[0].token_ids = std::move(token_ids);
  output.outputs[0].finish_reason = finish_reason;
  output.finished = finish_reason.has_value();
  return output;
}

// The data of each event; the text must be made of whole events.
inline std::vector<std::string> events_of(std::string_view stream) {
  std::vector<std::string> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_TRUE(stream.starts_with("data: ") && end != std::string_view::npos) << stream;
    if (end == std::string_view::npos) break;
    events.emplace_back(stream.substr(6, end - 6));
    stream.remove_prefix(end + 2);
  }
  return events;
}

inline void append_lists(Json& whole, const Json& news) {
  if (news.is_null()) return;
  if (whole.is_null()) {
    whole = news;
    return;
  }
  for (const auto& [name, values] : news.items()) {
    for (const Json& value : values) whole[name].push_back(value);
  }
}

inline void append_text(Json& object, const char* name, const Json& delta) {
  if (!delta.contains(name)) return;
  object[name] = object.value(name, "") + delta[name].get<std::string>();
}

// Puts a chunk's tool calls together, as clients do it.
inline void append_tool_calls(Json& message, const Json& delta) {
  if (!delta.contains("tool_calls")) return;
  for (const Json& news : delta["tool_calls"]) {
    const auto index = news["index"].get<size_t>();
    Json& calls = message["tool_calls"];
    if (index >= calls.size()) {
      calls.push_back({{"id", news["id"]}, {"type", news["type"]}});
      calls[index]["function"]["name"] = news["function"]["name"];
    }
    append_text(calls[index]["function"], "arguments", news["function"]);
  }
}

// The answer of /v1/chat/completions or /v1/completions that the events of a stream add up to.
inline Json reassemble(std::string_view stream) {
  std::map<size_t, Json> choices;
  Json body;
  for (const std::string& data : events_of(stream)) {
    if (data == "[DONE]") break;
    const Json event = Json::parse(data);
    for (const char* name : {"id", "created", "model"}) body[name] = event[name];
    if (event.contains("usage") && !event["usage"].is_null()) body["usage"] = event["usage"];
    if (event.contains("prompt_token_ids")) body["prompt_token_ids"] = event["prompt_token_ids"];
    for (const Json& news : event["choices"]) {
      Json& choice = choices[news["index"].get<size_t>()];
      choice["index"] = news["index"];
      append_text(choice, "text", news);
      if (news.contains("delta")) {
        const Json& delta = news["delta"];
        if (delta.contains("role")) choice["message"]["role"] = delta["role"];
        append_text(choice["message"], "content", delta);
        append_text(choice["message"], "reasoning_content", delta);
        append_tool_calls(choice["message"], delta);
      }
      append_lists(choice["logprobs"], news["logprobs"]);
      for (const char* name : {"prompt_token_ids", "finish_reason", "stop_reason"}) {
        if (news.contains(name) && !news[name].is_null()) choice[name] = news[name];
      }
      if (news.contains("token_ids")) {
        for (const Json& id : news["token_ids"]) choice["token_ids"].push_back(id);
      }
    }
  }
  for (auto& [index, choice] : choices) body["choices"].push_back(choice);
  return body;
}

// Leaves out members that mean the same as their absence, so that both forms of an answer can be
// compared.
inline Json without_empty(const Json& value) {
  if (!value.is_structured()) return value;
  Json result = value.is_object() ? Json::object() : Json::array();
  if (value.is_array()) {
    for (const Json& item : value) result.push_back(without_empty(item));
    return result;
  }
  // Sorted by name: the order of fields has no meaning.
  std::map<std::string, Json> members;
  for (const auto& [name, member] : value.items()) {
    Json rest = without_empty(member);
    const bool empty = rest.is_null() || rest == "" || (rest.is_structured() && rest.empty());
    if (!empty && name != "object") members[name] = std::move(rest);
  }
  for (auto& [name, member] : members) result[name] = std::move(member);
  return result;
}

}  // namespace quire::server
