#pragma once
// The answers of /v1/chat/completions.
//
// Thread safety: one thread at a time.
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/output_parser.h"
#include "server/answer/answer_state.h"
#include "server/answer/response_format.h"

namespace quire::server {

class ChatFormatter : public ResponseFormatter {
 public:
  ChatFormatter(const GenerationRequest& request, FormatContext context);

  std::string begin() override;
  std::string push(size_t prompt_index, const RequestOutput& delta) override;
  std::string end() override;
  std::string fail(const ApiError& error) override;
  bool done() const override;
  Usage usage() const override { return state_.usage(); }
  std::string finish_reason() const override { return state_.finish_reason(); }

 private:
  // What is new of a choice, or all of it.
  struct News {
    ParsedDelta parsed{};
    Json logprobs{};  // the items of "content"; null: none
    std::vector<int32_t> token_ids{};
  };
  struct Choice {
    std::unique_ptr<OutputParser> parser{};
    int64_t unread_tokens = 0;  // whose text the parser still holds back
    News whole{};               // where it is not streamed
  };

  Json header(const char* object) const;
  ParsedDelta parse(Choice& choice, const CompletionOutput& output);
  std::string finish_reason_of(const Choice& choice, FinishReason reason) const;
  void write_events(std::string& out, size_t index, const News& news);
  void write_content_event(std::string& out, size_t index, std::string_view content) const;
  Json delta_of(const News& news) const;
  Json event_of(size_t index, Json delta, const News& news, bool last);
  static void keep(News& whole, News news);
  Json message_of(const News& whole) const;
  Json whole_body() const;

  FormatContext context_;
  AnswerState state_;
  std::vector<Choice> choices_;
  std::string echo_;  // opens the content
  bool stream_;
  bool include_usage_;
  bool continuous_usage_;
  bool include_reasoning_;
  bool logprobs_;
  bool prompt_logprobs_;
  bool return_token_ids_;
  bool tokens_as_ids_;
  std::optional<std::vector<int32_t>> prompt_token_ids_;  // to go with the next event
  Json whole_prompt_logprobs_;
  std::string event_head_;
  std::string event_tail_;
};

}  // namespace quire::server
