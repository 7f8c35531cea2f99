#include "server/answer/answer_formatter.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace quire::server {

AnswerOptions::AnswerOptions(const GenerationRequest& request)
    : stream(request.stream),
      include_usage(request.include_usage),
      continuous_usage(request.include_usage && request.continuous_usage_stats),
      logprobs(request.logprobs),
      prompt_logprobs(request.prompt_logprobs),
      token_ids(request.return_token_ids),
      tokens_as_ids(request.return_tokens_as_token_ids) {}

AnswerFormatter::AnswerFormatter(const GenerationRequest& request, FormatContext context,
                                 const Names& names)
    : context_(std::move(context)), options_(request), state_(request), names_(names) {
  event_open_ = "data: ";
  JsonWriter json(event_open_);
  json.begin_object();
  write_head(json, names_.event);
  event_open_ += R"(,"choices":[{"index":)";
  event_close_ = fmt::format(R"({},"logprobs":null,"finish_reason":null}}])", names_.text_close);
  event_close_ += options_.include_usage ? ",\"usage\":null}\n\n" : "}\n\n";
}

void AnswerFormatter::write_head(JsonWriter& json, const char* object) const {
  json.member("id", context_.id).member("object", object);
  json.member("created", context_.created).member("model", context_.model);
}

void AnswerFormatter::write_text_event(std::string& out, size_t choice,
                                       std::string_view text) const {
  out.reserve(out.size() + event_open_.size() + text.size() + event_close_.size() + 64);
  out += event_open_;
  fmt::format_to(std::back_inserter(out), "{}", choice);
  out += names_.text_open;
  append_json_escaped(out, text);
  out += event_close_;
}

void AnswerFormatter::begin_event(std::string& out, JsonWriter& json) const {
  out += "data: ";
  json.begin_object();
  write_head(json, names_.event);
}

void AnswerFormatter::end_event(std::string& out, JsonWriter& json) const {
  if (options_.continuous_usage) {
    write_usage(json.key("usage"), state_.usage());
  } else if (options_.include_usage) {
    json.null_member("usage");
  }
  json.end_object();
  out += "\n\n";
}

void AnswerFormatter::write_finish_reason(JsonWriter& json, size_t choice) const {
  if (state_.ended(choice)) {
    json.member("finish_reason", state_.finish_reason_of(choice));
  } else {
    json.null_member("finish_reason");
  }
}

void AnswerFormatter::write_end_of_choice(JsonWriter& json, size_t choice) const {
  write_finish_reason(json, choice);
  write_stop_reason(json.key("stop_reason"), state_.stop_reason_of(choice), state_.stop_strings());
  if (state_.steered_to_end(choice)) json.member("steered_to_end", true);
}

std::string AnswerFormatter::end() {
  std::string out;
  if (!options_.stream) {
    begin_body();
    return next_piece();
  }
  if (options_.include_usage) {
    out += "data: ";
    JsonWriter json(out);
    json.begin_object();
    write_head(json, names_.event);
    json.key("choices").begin_array().end_array();
    write_usage(json.key("usage"), state_.usage());
    json.end_object();
    out += "\n\n";
  }
  return out += kDoneEvent;
}

void AnswerFormatter::begin_body() {
  body_ = std::make_unique<JsonParts>();
  body_->add([this](JsonWriter& json) {
    json.begin_object();
    write_head(json, names_.whole);
    json.key("choices").begin_array();
  });
  for (size_t i = 0; i < state_.num_choices(); ++i) add_choice(*body_, i);
  body_->add([this](JsonWriter& json) {
    json.end_array();
    write_usage(json.key("usage"), state_.usage());
  });
  add_last_members(*body_);
  body_->add([](JsonWriter& json) { json.end_object(); });
}

std::string AnswerFormatter::next_piece() {
  return body_->next(kPieceBytes);
}

std::string AnswerFormatter::fail(const ApiError& error) {
  if (!options_.stream) return error_body(error);
  return fmt::format("data: {}\n\n{}", error_body(error), kDoneEvent);
}

}  // namespace quire::server
