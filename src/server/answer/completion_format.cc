#include "server/answer/completion_format.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace quire::server {

CompletionFormatter::CompletionFormatter(const GenerationRequest& request, FormatContext context)
    : context_(std::move(context)),
      state_(request.num_prompts(), request.sampling.n, request.sampling.stop),
      choices_(request.num_choices()),
      stream_(request.stream),
      include_usage_(request.include_usage),
      continuous_usage_(request.include_usage && request.continuous_usage_stats),
      logprobs_(request.logprobs),
      prompt_logprobs_(request.prompt_logprobs),
      return_token_ids_(request.return_token_ids),
      tokens_as_ids_(request.return_tokens_as_token_ids) {
  if (request.echo) {
    for (const auto& prompt : request.prompts) echoes_.push_back(echo_of(prompt));
  }
  // An event of nothing but text is this, the choice's index, this, the text, and this.
  Json event = header();
  const std::string opening = dump(event);
  event_head_ = "data: " + opening.substr(0, opening.size() - 1) + R"(,"choices":[{"index":)";
  event_tail_ = R"(","logprobs":null,"finish_reason":null}])";
  event_tail_ += include_usage_ ? ",\"usage\":null}\n\n" : "}\n\n";
}

std::string CompletionFormatter::echo_of(
    const std::variant<std::string, std::vector<int32_t>>& prompt) const {
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  if (context_.tokenizer == nullptr) return "";
  std::vector<int32_t> ids = std::get<std::vector<int32_t>>(prompt);
  std::erase_if(ids, [this](int32_t id) { return id >= context_.tokenizer->vocab_size(); });
  return context_.tokenizer->decode(ids);
}

Json CompletionFormatter::header() const {
  Json body;
  body["id"] = context_.id;
  body["object"] = "text_completion";
  body["created"] = context_.created;
  body["model"] = context_.model;
  return body;
}

std::string CompletionFormatter::begin() {
  return "";
}

std::string CompletionFormatter::push(size_t prompt_index, const RequestOutput& delta) {
  state_.count_prompt(prompt_index, delta);
  std::string out;
  for (const CompletionOutput& output : delta.outputs) {
    const size_t index = state_.choice_index(prompt_index, output);
    if (state_.ended(index)) continue;
    state_.count_tokens(output);
    News news = news_of(prompt_index, delta, output);
    if (output.finish_reason) {
      state_.end_choice(index, std::string(to_string(*output.finish_reason)), output.stop_reason);
    }
    if (stream_) {
      write_events(out, index, news);
    } else {
      keep(index, std::move(news));
    }
  }
  return out;
}

CompletionFormatter::News CompletionFormatter::news_of(size_t prompt_index,
                                                       const RequestOutput& delta,
                                                       const CompletionOutput& output) {
  Choice& choice = choices_[state_.choice_index(prompt_index, output)];
  News news;
  news.text = output.text;
  const bool opening = !std::exchange(choice.begun, true);
  if (opening && !echoes_.empty()) news.text = echoes_[prompt_index] + output.text;
  if (logprobs_) {
    if (opening && !echoes_.empty()) {
      append_logprobs(news, delta.prompt_logprobs, first_token(delta), choice.text_offset);
    }
    append_logprobs(news, output.logprobs, "", choice.text_offset);
  }
  if (return_token_ids_) {
    news.token_ids = output.token_ids;
    if (opening) news.prompt_token_ids = delta.prompt_token_ids;
  }
  if (opening && prompt_logprobs_) {
    news.prompt_logprobs = prompt_logprobs_json(delta.prompt_logprobs);
  }
  return news;
}

std::string CompletionFormatter::first_token(const RequestOutput& delta) const {
  if (delta.prompt_token_ids.empty()) return "";
  Logprob token;
  token.token_id = delta.prompt_token_ids.front();
  if (context_.tokenizer != nullptr && token.token_id < context_.tokenizer->vocab_size()) {
    token.decoded_token = context_.tokenizer->decode({&token.token_id, 1});
  }
  return token_text(token, tokens_as_ids_);
}

void CompletionFormatter::append_logprobs(News& news,
                                          const std::vector<PositionLogprobs>& positions,
                                          const std::string& first, int64_t& offset) const {
  if (positions.empty()) return;
  if (news.logprobs.is_null()) news.logprobs = empty_completion_logprobs();
  append_completion_logprobs(news.logprobs, positions, first, tokens_as_ids_, offset);
}

bool CompletionFormatter::is_text_only(const News& news) const {
  return news.logprobs.is_null() && news.token_ids.empty() && !news.prompt_token_ids;
}

void CompletionFormatter::write_events(std::string& out, size_t index, const News& news) const {
  if (!is_text_only(news) || (continuous_usage_ && !news.text.empty())) {
    out += sse_event(event_of(index, news, /*last=*/false));
  } else if (!news.text.empty()) {
    write_text_event(out, index, news.text);
  }
  if (state_.ended(index)) out += sse_event(event_of(index, {}, /*last=*/true));
}

void CompletionFormatter::write_text_event(std::string& out, size_t index,
                                           std::string_view text) const {
  out.reserve(out.size() + event_head_.size() + text.size() + event_tail_.size() + 32);
  out += event_head_;
  fmt::format_to(std::back_inserter(out), "{}", index);
  out += R"(,"text":")";
  append_escaped(out, text);
  out += event_tail_;
}

Json CompletionFormatter::choice_of(size_t index, const News& news) const {
  Json choice;
  choice["index"] = index;
  choice["text"] = news.text;
  choice["logprobs"] = news.logprobs;
  return choice;
}

Json CompletionFormatter::event_of(size_t index, const News& news, bool last) const {
  Json choice = choice_of(index, news);
  choice["finish_reason"] = last ? state_.finish_reason_json(index) : Json();
  if (last) choice["stop_reason"] = state_.stop_reason_json(index);
  if (return_token_ids_) choice["token_ids"] = news.token_ids;
  if (news.prompt_token_ids) choice["prompt_token_ids"] = *news.prompt_token_ids;
  Json event = header();
  event["choices"] = Json::array({std::move(choice)});
  if (continuous_usage_) {
    event["usage"] = usage_json(state_.usage());
  } else if (include_usage_) {
    event["usage"] = nullptr;
  }
  return event;
}

void CompletionFormatter::keep(size_t index, News news) {
  News& whole = choices_[index].whole;
  whole.text += news.text;
  whole.token_ids.insert(whole.token_ids.end(), news.token_ids.begin(), news.token_ids.end());
  if (news.prompt_token_ids) whole.prompt_token_ids = std::move(news.prompt_token_ids);
  if (!news.prompt_logprobs.is_null()) whole.prompt_logprobs = std::move(news.prompt_logprobs);
  if (whole.logprobs.is_null()) {
    whole.logprobs = std::move(news.logprobs);
  } else if (!news.logprobs.is_null()) {
    for (auto& [name, values] : news.logprobs.items()) {
      for (Json& value : values) whole.logprobs[name].push_back(std::move(value));
    }
  }
}

std::string CompletionFormatter::end() {
  if (!stream_) return dump(whole_body());
  std::string out;
  if (include_usage_) {
    Json event = header();
    event["choices"] = Json::array();
    event["usage"] = usage_json(state_.usage());
    out += sse_event(event);
  }
  return out += kDoneEvent;
}

Json CompletionFormatter::whole_body() const {
  Json body = header();
  Json& choices = body["choices"] = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const News& whole = choices_[i].whole;
    Json choice = choice_of(i, whole);
    choice["finish_reason"] = state_.finish_reason_json(i);
    choice["stop_reason"] = state_.stop_reason_json(i);
    if (prompt_logprobs_) choice["prompt_logprobs"] = whole.prompt_logprobs;
    if (return_token_ids_) {
      choice["token_ids"] = whole.token_ids;
      choice["prompt_token_ids"] = whole.prompt_token_ids ? Json(*whole.prompt_token_ids) : Json();
    }
    choices.push_back(std::move(choice));
  }
  body["usage"] = usage_json(state_.usage());
  return body;
}

std::string CompletionFormatter::fail(const ApiError& error) {
  if (!stream_) return error_body(error);
  return fmt::format("data: {}\n\n{}", error_body(error), kDoneEvent);
}

bool CompletionFormatter::done() const {
  return state_.all_ended();
}

}  // namespace quire::server
