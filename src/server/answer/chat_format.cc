#include "server/answer/chat_format.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "server/api/render_prompt.h"

namespace quire::server {
namespace {

// A call as a stream sends it: its name comes with its first piece.
void write_tool_call_delta(JsonWriter& json, const ToolCallDelta& call) {
  json.begin_object().member("index", call.index);
  if (!call.id.empty()) json.member("id", call.id).member("type", "function");
  json.key("function").begin_object();
  if (!call.id.empty()) json.member("name", call.name);
  json.member("arguments", call.arguments).end_object().end_object();
}

void write_tool_call(JsonWriter& json, const ToolCallDelta& call) {
  json.begin_object().member("id", call.id).member("type", "function");
  json.key("function").begin_object();
  json.member("name", call.name).member("arguments", call.arguments);
  json.end_object().end_object();
}

void write_delta(JsonWriter& json, const ParsedDelta& parsed) {
  json.begin_object();
  if (!parsed.reasoning.empty()) json.member("reasoning_content", parsed.reasoning);
  // Tokens without text come with an empty one.
  if (!parsed.content.empty() || parsed.empty()) json.member("content", parsed.content);
  if (!parsed.tool_calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const ToolCallDelta& call : parsed.tool_calls) write_tool_call_delta(json, call);
    json.end_array();
  }
  json.end_object();
}

void write_message(JsonWriter& json, const ParsedDelta& parsed) {
  json.begin_object().member("role", "assistant");
  if (parsed.content.empty() && !parsed.tool_calls.empty()) {
    json.null_member("content");
  } else {
    json.member("content", parsed.content);
  }
  json.null_member("refusal");
  if (!parsed.reasoning.empty()) json.member("reasoning_content", parsed.reasoning);
  if (!parsed.tool_calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const ToolCallDelta& call : parsed.tool_calls) write_tool_call(json, call);
    json.end_array();
  }
  json.end_object();
}

// In bytes, without the reasoning.
size_t length_of_answer(const ParsedDelta& parsed) {
  size_t length = parsed.content.size();
  for (const ToolCallDelta& call : parsed.tool_calls) {
    length += call.name.size() + call.arguments.size();
  }
  return length;
}

// Appends `next`, which came later, to `parsed`.
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
    : AnswerFormatter(request, std::move(context),
                      {.whole = "chat.completion",
                       .event = "chat.completion.chunk",
                       .text_open = R"(,"delta":{"content":")",
                       .text_close = R"("})"}),
      choices_(request.num_choices()),
      echo_(echoed_message(request)),
      include_reasoning_(request.include_reasoning),
      is_forced_(request.tool_choice == ToolChoice::kRequired ||
                 request.tool_choice == ToolChoice::kNamed) {
  check(context_.make_parser != nullptr, "a chat's answer needs a parser for each choice");
  for (Choice& choice : choices_) choice.parser = context_.make_parser();
}

std::string ChatFormatter::begin() {
  std::string out;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!options_.stream) {
      choices_[i].whole.parsed.content = echo_;
      continue;
    }
    write_choice_event(out, i, {}, /*last=*/false, [](JsonWriter& json) {
      json.begin_object().member("role", "assistant").member("content", "").end_object();
    });
    if (!echo_.empty()) write_text_event(out, i, echo_);
  }
  return out;
}

std::string ChatFormatter::push(size_t prompt_index, RequestOutput delta) {
  state_.count_prompt(prompt_index, delta);
  if (!delta.prompt_token_ids.empty()) {
    if (options_.prompt_logprobs && !options_.stream) {
      whole_prompt_logprobs_ = std::move(delta.prompt_logprobs);
    }
    if (options_.token_ids) prompt_token_ids_ = std::move(delta.prompt_token_ids);
  }
  std::string out;
  for (CompletionOutput& output : delta.outputs) {
    const size_t index = state_.choice_index(prompt_index, output);
    if (state_.ended(index)) continue;
    state_.count_tokens(output);
    Choice& choice = choices_[index];
    News news;
    news.parsed = parse(choice, output);
    if (is_forced_ && output.finish_reason) check_end(choice, output);
    if (options_.logprobs) news.logprobs = std::move(output.logprobs);
    if (options_.token_ids) news.token_ids = std::move(output.token_ids);
    if (output.finish_reason) {
      state_.end_choice(index, finish_reason_of(choice, *output.finish_reason), output);
    }
    if (options_.stream) {
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
  if (is_forced_) choice.forced.add(parsed);
  // Tokens count to the part that their text belongs to; tokens that came together are divided by
  // its length.
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

void ChatFormatter::check_end(const Choice& choice, const CompletionOutput& output) const {
  if (choice.parser->done()) return;  // what followed the only call was dropped
  if (const auto error = cut_call_error(choice.forced, output)) throw ApiError(*error);
}

std::string ChatFormatter::finish_reason_of(const Choice& choice, FinishReason reason) const {
  // An answer that was ended because its calls were complete was not cut short.
  const bool regular = reason == FinishReason::kStop || choice.parser->done();
  if (regular && choice.parser->has_tool_calls()) return "tool_calls";
  return std::string(to_string(reason));
}

bool ChatFormatter::is_plain(const News& news) const {
  return news.logprobs.empty() && news.token_ids.empty() && !prompt_token_ids_ &&
         news.parsed.reasoning.empty() && news.parsed.tool_calls.empty() &&
         !options_.continuous_usage;
}

void ChatFormatter::write_events(std::string& out, size_t index, const News& news) {
  const ParsedDelta& parsed = news.parsed;
  if (is_plain(news)) {
    if (!parsed.content.empty()) write_text_event(out, index, parsed.content);
  } else if (!parsed.empty() || !news.logprobs.empty() || !news.token_ids.empty()) {
    write_choice_event(out, index, news, /*last=*/false,
                       [&](JsonWriter& json) { write_delta(json, parsed); });
  }
  if (state_.ended(index)) {
    write_choice_event(out, index, {}, /*last=*/true,
                       [](JsonWriter& json) { json.begin_object().end_object(); });
  }
}

template <typename WriteDelta>
void ChatFormatter::write_choice_event(std::string& out, size_t index, const News& news, bool last,
                                       WriteDelta write_delta_value) {
  write_event(out, [&](JsonWriter& json) {
    json.key("choices").begin_array().begin_object().member("index", index);
    write_delta_value(json.key("delta"));
    write_logprobs(json.key("logprobs"), news);
    if (last) {
      write_end_of_choice(json, index);
    } else {
      json.null_member("finish_reason");
    }
    if (!news.token_ids.empty()) json.key("token_ids").values(news.token_ids);
    json.end_object().end_array();
    if (prompt_token_ids_) {
      json.key("prompt_token_ids").values(*std::exchange(prompt_token_ids_, std::nullopt));
    }
  });
}

void ChatFormatter::write_logprobs(JsonWriter& json, const News& news) const {
  if (news.logprobs.empty()) {
    json.null();
    return;
  }
  json.begin_object().key("content").begin_array();
  for (const PositionLogprobs& position : news.logprobs) {
    write_chat_position(json, position, options_.tokens_as_ids);
  }
  json.end_array().end_object();
}

void ChatFormatter::keep(News& whole, News news) {
  append(whole.parsed, std::move(news.parsed));
  whole.token_ids.insert(whole.token_ids.end(), news.token_ids.begin(), news.token_ids.end());
  std::ranges::move(news.logprobs, std::back_inserter(whole.logprobs));
}

void ChatFormatter::add_choice(JsonParts& body, size_t index) {
  News& whole = choices_[index].whole;
  body.add([index, &whole](JsonWriter& json) {
    json.begin_object().member("index", index);
    write_message(json.key("message"), whole.parsed);
    json.key("logprobs");
  });
  add_logprobs(body, whole);
  body.add([this, index, &whole](JsonWriter& json) {
    write_end_of_choice(json, index);
    if (options_.token_ids) json.key("token_ids").values(whole.token_ids);
    json.end_object();
    whole = {};
  });
}

void ChatFormatter::add_logprobs(JsonParts& body, const News& whole) const {
  if (!options_.logprobs) {
    body.add([](JsonWriter& json) { json.null(); });
    return;
  }
  body.add([](JsonWriter& json) { json.begin_object().key("content").begin_array(); });
  body.add_items(whole.logprobs.size(), [this, &whole](JsonWriter& json, size_t i) {
    write_chat_position(json, whole.logprobs[i], options_.tokens_as_ids);
  });
  body.add([](JsonWriter& json) { json.end_array().end_object(); });
}

void ChatFormatter::add_last_members(JsonParts& body) {
  if (options_.prompt_logprobs && !whole_prompt_logprobs_) {
    body.add([](JsonWriter& json) { json.null_member("prompt_logprobs"); });
  } else if (options_.prompt_logprobs) {
    body.add([](JsonWriter& json) { json.key("prompt_logprobs").begin_array(); });
    body.add_items(whole_prompt_logprobs_->size(), [this](JsonWriter& json, size_t i) {
      write_prompt_position(json, (*whole_prompt_logprobs_)[i]);
    });
    body.add([](JsonWriter& json) { json.end_array(); });
  }
  if (!options_.token_ids) return;
  body.add([this](JsonWriter& json) {
    if (prompt_token_ids_) {
      json.key("prompt_token_ids").values(*prompt_token_ids_);
    } else {
      json.null_member("prompt_token_ids");
    }
  });
}

bool ChatFormatter::done() const {
  if (state_.all_ended()) return true;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!state_.ended(i) && !choices_[i].parser->done()) return false;
  }
  return true;
}

}  // namespace quire::server
