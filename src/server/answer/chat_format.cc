#include "server/answer/chat_format.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace quire::server {
namespace {

constexpr const char* kChunk = "chat.completion.chunk";

// With `echo` an answer opens with the last message, where that is the assistant's.
std::string echo_of(const GenerationRequest& request) {
  if (!request.echo || request.chat.messages.empty()) return "";
  const Json& last = request.chat.messages.back();
  if (last.value("role", "") != "assistant") return "";
  return last.value("content", "");
}

Json tool_call_delta(const ToolCallDelta& call) {
  Json json;
  json["index"] = call.index;
  if (!call.id.empty()) {
    json["id"] = call.id;
    json["type"] = "function";
    json["function"]["name"] = call.name;
  }
  json["function"]["arguments"] = call.arguments;
  return json;
}

Json tool_call(const ToolCallDelta& call) {
  Json json;
  json["id"] = call.id;
  json["type"] = "function";
  json["function"]["name"] = call.name;
  json["function"]["arguments"] = call.arguments;
  return json;
}

// In bytes, without the reasoning.
size_t length_of_answer(const ParsedDelta& parsed) {
  size_t length = parsed.content.size();
  for (const ToolCallDelta& call : parsed.tool_calls) {
    length += call.name.size() + call.arguments.size();
  }
  return length;
}

// Puts `next`, which came after, onto `parsed`.
void append(ParsedDelta& parsed, ParsedDelta next) {
  parsed.content += next.content;
  parsed.reasoning += next.reasoning;
  for (ToolCallDelta& call : next.tool_calls) {
    if (!parsed.tool_calls.empty() && parsed.tool_calls.back().index == call.index) {
      parsed.tool_calls.back().arguments += call.arguments;
    } else {
      parsed.tool_calls.push_back(std::move(call));
    }
  }
}

}  // namespace

ChatFormatter::ChatFormatter(const GenerationRequest& request, FormatContext context)
    : context_(std::move(context)),
      state_(1, request.sampling.n, request.sampling.stop),
      choices_(request.num_choices()),
      echo_(echo_of(request)),
      stream_(request.stream),
      include_usage_(request.include_usage),
      continuous_usage_(request.include_usage && request.continuous_usage_stats),
      include_reasoning_(request.include_reasoning),
      logprobs_(request.logprobs),
      prompt_logprobs_(request.prompt_logprobs),
      return_token_ids_(request.return_token_ids),
      tokens_as_ids_(request.return_tokens_as_token_ids) {
  check(context_.make_parser != nullptr, "a chat's answer needs a parser for each choice");
  for (Choice& choice : choices_) choice.parser = context_.make_parser();
  // An event of nothing but content is this, the choice's index, this, the content, and this.
  const std::string opening = dump(header(kChunk));
  event_head_ = "data: " + opening.substr(0, opening.size() - 1) + R"(,"choices":[{"index":)";
  event_tail_ = R"("},"logprobs":null,"finish_reason":null}])";
  event_tail_ += include_usage_ ? ",\"usage\":null}\n\n" : "}\n\n";
}

Json ChatFormatter::header(const char* object) const {
  Json body;
  body["id"] = context_.id;
  body["object"] = object;
  body["created"] = context_.created;
  body["model"] = context_.model;
  return body;
}

std::string ChatFormatter::begin() {
  std::string out;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (stream_) {
      Json delta{{"role", "assistant"}, {"content", ""}};
      out += sse_event(event_of(i, std::move(delta), {}, /*last=*/false));
      if (!echo_.empty()) write_content_event(out, i, echo_);
    } else {
      choices_[i].whole.parsed.content = echo_;
    }
  }
  return out;
}

std::string ChatFormatter::push(size_t prompt_index, const RequestOutput& delta) {
  state_.count_prompt(prompt_index, delta);
  if (!delta.prompt_token_ids.empty()) {
    if (return_token_ids_) prompt_token_ids_ = delta.prompt_token_ids;
    if (prompt_logprobs_) whole_prompt_logprobs_ = prompt_logprobs_json(delta.prompt_logprobs);
  }
  std::string out;
  for (const CompletionOutput& output : delta.outputs) {
    const size_t index = state_.choice_index(prompt_index, output);
    if (state_.ended(index)) continue;
    state_.count_tokens(output);
    Choice& choice = choices_[index];
    News news;
    news.parsed = parse(choice, output);
    if (logprobs_ && !output.logprobs.empty()) {
      news.logprobs = chat_logprobs(output.logprobs, tokens_as_ids_);
    }
    if (return_token_ids_) news.token_ids = output.token_ids;
    if (output.finish_reason) {
      state_.end_choice(index, finish_reason_of(choice, *output.finish_reason), output.stop_reason);
    }
    if (stream_) {
      write_events(out, index, news);
    } else {
      keep(choice.whole, std::move(news));
    }
  }
  return out;
}

ParsedDelta ChatFormatter::parse(Choice& choice, const CompletionOutput& output) {
  ParsedDelta parsed = choice.parser->push(output.text);
  if (output.finish_reason) append(parsed, choice.parser->finish());
  // Tokens count to what their text comes out as; those that came together, by its length.
  choice.unread_tokens += static_cast<int64_t>(output.token_ids.size());
  if (!parsed.empty()) {
    const size_t reasoning = parsed.reasoning.size();
    const size_t whole = reasoning + length_of_answer(parsed);
    if (reasoning > 0) {
      const double share = static_cast<double>(reasoning) / static_cast<double>(whole);
      state_.count_reasoning(
          static_cast<int64_t>(std::ceil(share * static_cast<double>(choice.unread_tokens))));
    }
    choice.unread_tokens = 0;
  }
  if (!include_reasoning_) parsed.reasoning.clear();
  return parsed;
}

std::string ChatFormatter::finish_reason_of(const Choice& choice, FinishReason reason) const {
  // One that was ended because its calls were complete has not been cut short.
  const bool regular = reason == FinishReason::kStop || choice.parser->done();
  if (regular && choice.parser->has_tool_calls()) return "tool_calls";
  return std::string(to_string(reason));
}

void ChatFormatter::write_events(std::string& out, size_t index, const News& news) {
  const ParsedDelta& parsed = news.parsed;
  const bool plain = news.logprobs.is_null() && news.token_ids.empty() && !prompt_token_ids_ &&
                     parsed.reasoning.empty() && parsed.tool_calls.empty() && !continuous_usage_;
  if (plain) {
    if (!parsed.content.empty()) write_content_event(out, index, parsed.content);
  } else if (!parsed.empty() || !news.logprobs.is_null() || !news.token_ids.empty()) {
    out += sse_event(event_of(index, delta_of(news), news, /*last=*/false));
  }
  if (state_.ended(index)) {
    out += sse_event(event_of(index, Json::object(), {}, /*last=*/true));
  }
}

void ChatFormatter::write_content_event(std::string& out, size_t index,
                                        std::string_view content) const {
  out.reserve(out.size() + event_head_.size() + content.size() + event_tail_.size() + 64);
  out += event_head_;
  fmt::format_to(std::back_inserter(out), "{}", index);
  out += R"(,"delta":{"content":")";
  append_escaped(out, content);
  out += event_tail_;
}

Json ChatFormatter::delta_of(const News& news) const {
  Json delta = Json::object();
  if (!news.parsed.reasoning.empty()) delta["reasoning_content"] = news.parsed.reasoning;
  // Tokens without text come with an empty one.
  if (!news.parsed.content.empty() || news.parsed.empty()) delta["content"] = news.parsed.content;
  for (const ToolCallDelta& call : news.parsed.tool_calls) {
    delta["tool_calls"].push_back(tool_call_delta(call));
  }
  return delta;
}

Json ChatFormatter::event_of(size_t index, Json delta, const News& news, bool last) {
  Json choice;
  choice["index"] = index;
  choice["delta"] = std::move(delta);
  choice["logprobs"] = news.logprobs.is_null() ? Json() : Json{{"content", news.logprobs}};
  choice["finish_reason"] = last ? state_.finish_reason_json(index) : Json();
  if (last) choice["stop_reason"] = state_.stop_reason_json(index);
  if (!news.token_ids.empty()) choice["token_ids"] = news.token_ids;
  Json event = header(kChunk);
  event["choices"] = Json::array({std::move(choice)});
  if (prompt_token_ids_) {
    event["prompt_token_ids"] = *std::exchange(prompt_token_ids_, std::nullopt);
  }
  if (continuous_usage_) {
    event["usage"] = usage_json(state_.usage());
  } else if (include_usage_) {
    event["usage"] = nullptr;
  }
  return event;
}

void ChatFormatter::keep(News& whole, News news) {
  append(whole.parsed, std::move(news.parsed));
  whole.token_ids.insert(whole.token_ids.end(), news.token_ids.begin(), news.token_ids.end());
  if (news.logprobs.is_null()) return;
  for (Json& item : news.logprobs) whole.logprobs.push_back(std::move(item));
}

std::string ChatFormatter::end() {
  if (!stream_) return dump(whole_body());
  std::string out;
  if (include_usage_) {
    Json event = header(kChunk);
    event["choices"] = Json::array();
    event["usage"] = usage_json(state_.usage());
    out += sse_event(event);
  }
  return out += kDoneEvent;
}

Json ChatFormatter::message_of(const News& whole) const {
  const ParsedDelta& parsed = whole.parsed;
  Json message;
  message["role"] = "assistant";
  const bool only_calls = parsed.content.empty() && !parsed.tool_calls.empty();
  message["content"] = only_calls ? Json() : Json(parsed.content);
  message["refusal"] = nullptr;
  if (!parsed.reasoning.empty()) message["reasoning_content"] = parsed.reasoning;
  for (const ToolCallDelta& call : parsed.tool_calls) {
    message["tool_calls"].push_back(tool_call(call));
  }
  return message;
}

Json ChatFormatter::whole_body() const {
  Json body = header("chat.completion");
  Json& choices = body["choices"] = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const News& whole = choices_[i].whole;
    Json choice;
    choice["index"] = i;
    choice["message"] = message_of(whole);
    choice["logprobs"] = nullptr;
    if (logprobs_) {
      choice["logprobs"] =
          Json{{"content", whole.logprobs.is_null() ? Json::array() : whole.logprobs}};
    }
    choice["finish_reason"] = state_.finish_reason_json(i);
    choice["stop_reason"] = state_.stop_reason_json(i);
    if (return_token_ids_) choice["token_ids"] = whole.token_ids;
    choices.push_back(std::move(choice));
  }
  body["usage"] = usage_json(state_.usage());
  if (prompt_logprobs_) body["prompt_logprobs"] = whole_prompt_logprobs_;
  if (return_token_ids_) {
    body["prompt_token_ids"] = prompt_token_ids_ ? Json(*prompt_token_ids_) : Json();
  }
  return body;
}

std::string ChatFormatter::fail(const ApiError& error) {
  if (!stream_) return error_body(error);
  return fmt::format("data: {}\n\n{}", error_body(error), kDoneEvent);
}

bool ChatFormatter::done() const {
  if (state_.all_ended()) return true;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!state_.ended(i) && !choices_[i].parser->done()) return false;
  }
  return true;
}

}  // namespace quire::server
