#pragma once
// Shared by the formatters of chats and of completions: the head of every answer and event, a fast
// path for events with nothing but text, and the end.
//
// Thread safety: one thread at a time.
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_parts.h"
#include "base/json_writer.h"
#include "server/answer/answer_state.h"
#include "server/answer/format_parts.h"
#include "server/answer/response_format.h"

namespace quire::server {

// What a request wants to see in its answer.
struct AnswerOptions {
  explicit AnswerOptions(const GenerationRequest& request);

  bool stream;
  bool include_usage;
  bool continuous_usage;
  bool logprobs;
  bool prompt_logprobs;
  bool token_ids;
  bool tokens_as_ids;  // in logprobs
};

class AnswerFormatter : public ResponseFormatter {
 public:
  std::string end() override;
  bool more_follows() const override { return body_ != nullptr && !body_->complete(); }
  std::string next_piece() override;
  std::string fail(const ApiError& error) override;
  Usage usage() const override { return state_.usage(); }
  std::string finish_reason() const override { return state_.finish_reason(); }

 protected:
  // "object" of a whole answer and of an event; what stands in an event between the choice's index
  // and its text (`,"text":"`), and behind the text (`"`).
  struct Names {
    const char* whole;
    const char* event;
    const char* text_open;
    const char* text_close;
  };

  AnswerFormatter(const GenerationRequest& request, FormatContext context, const Names& names);

  // An event of a choice that brings only text.
  void write_text_event(std::string& out, size_t choice, std::string_view text) const;
  // "data: {...}\n\n": the head, what `write_members` adds, and the usage where each event has it.
  template <typename WriteMembers>
  void write_event(std::string& out, WriteMembers write_members) const {
    JsonWriter json(out);
    begin_event(out, json);
    write_members(json);
    end_event(out, json);
  }
  // What ends a choice: null where it has not ended.
  void write_finish_reason(JsonWriter& json, size_t choice) const;
  void write_end_of_choice(JsonWriter& json, size_t choice) const;

  // The body of a whole answer: an item of "choices", and what stands behind "usage".
  virtual void add_choice(JsonParts& body, size_t choice) = 0;
  virtual void add_last_members(JsonParts&) {}

  const FormatContext context_;
  const AnswerOptions options_;
  AnswerState state_;

 private:
  void write_head(JsonWriter& json, const char* object) const;
  void begin_event(std::string& out, JsonWriter& json) const;
  void end_event(std::string& out, JsonWriter& json) const;
  void begin_body();

  const Names names_;
  std::string event_open_;           // of an event of nothing but text: up to the choice's index,
  std::string event_close_;          // and from the end of the text
  std::unique_ptr<JsonParts> body_;  // once it has begun
};

}  // namespace quire::server
