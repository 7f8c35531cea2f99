#pragma once
// The answers of /v1/chat/completions.
//
// Thread safety: one thread at a time.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parsers/output_parser.h"
#include "server/answer/answer_formatter.h"
#include "server/answer/forced_calls.h"

namespace quire::server {

class ChatFormatter : public AnswerFormatter {
 public:
  ChatFormatter(const GenerationRequest& request, FormatContext context);

  std::string begin() override;
  std::string push(size_t prompt_index, RequestOutput delta) override;
  bool done() const override;

 private:
  // What is new of a choice, or the whole choice.
  struct News {
    ParsedDelta parsed{};
    std::vector<PositionLogprobs> logprobs{};
    std::vector<int32_t> token_ids{};
  };
  struct Choice {
    std::unique_ptr<OutputParser> parser{};
    int64_t unread_tokens = 0;  // whose text the parser still holds back
    ForcedCalls forced{};       // where calls are forced
    News whole{};               // where it is not streamed
  };

  ParsedDelta parse(Choice& choice, const CompletionOutput& output);
  // Throws ApiError where the end cut a call that was forced.
  void check_end(const Choice& choice, const CompletionOutput& output) const;
  std::string finish_reason_of(const Choice& choice, FinishReason reason) const;
  bool is_plain(const News& news) const;
  void write_events(std::string& out, size_t index, const News& news);
  // `write_delta` writes the value of "delta".
  template <typename WriteDelta>
  void write_choice_event(std::string& out, size_t index, const News& news, bool last,
                          WriteDelta write_delta);
  void write_logprobs(JsonWriter& json, const News& news) const;
  static void keep(News& whole, News news);
  void add_choice(JsonParts& body, size_t index) override;
  void add_logprobs(JsonParts& body, const News& whole) const;
  void add_last_members(JsonParts& body) override;

  std::vector<Choice> choices_;
  std::string echo_;  // opens the content
  bool include_reasoning_;
  bool is_forced_;  // the answer is calls, whatever the model would say
  std::optional<std::vector<int32_t>> prompt_token_ids_;  // to go with the next event
  std::optional<std::vector<PositionLogprobs>> whole_prompt_logprobs_;
};

}  // namespace quire::server
