#pragma once
// The answers of /v1/completions.
//
// Thread safety: one thread at a time.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/answer/answer_state.h"
#include "server/answer/response_format.h"

namespace quire::server {

class CompletionFormatter : public ResponseFormatter {
 public:
  CompletionFormatter(const GenerationRequest& request, FormatContext context);

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
    std::string text{};
    Json logprobs{};  // null: none
    std::vector<int32_t> token_ids{};
    std::optional<std::vector<int32_t>> prompt_token_ids{};
    Json prompt_logprobs{};
  };
  struct Choice {
    bool begun = false;
    int64_t text_offset = 0;  // of the next token in logprobs, in characters
    News whole{};             // where it is not streamed
  };

  std::string echo_of(const std::variant<std::string, std::vector<int32_t>>& prompt) const;
  Json header() const;
  News news_of(size_t prompt_index, const RequestOutput& delta, const CompletionOutput& output);
  std::string first_token(const RequestOutput& delta) const;
  void append_logprobs(News& news, const std::vector<PositionLogprobs>& positions,
                       const std::string& first, int64_t& offset) const;
  bool is_text_only(const News& news) const;
  void write_events(std::string& out, size_t index, const News& news) const;
  void write_text_event(std::string& out, size_t index, std::string_view text) const;
  Json choice_of(size_t index, const News& news) const;
  Json event_of(size_t index, const News& news, bool last) const;
  void keep(size_t index, News news);
  Json whole_body() const;

  FormatContext context_;
  AnswerState state_;
  std::vector<Choice> choices_;
  std::vector<std::string> echoes_;  // of each prompt; empty: not asked for
  bool stream_;
  bool include_usage_;
  bool continuous_usage_;
  bool logprobs_;
  bool prompt_logprobs_;
  bool return_token_ids_;
  bool tokens_as_ids_;
  std::string event_head_;
  std::string event_tail_;
};

}  // namespace quire::server
