#pragma once
// The answers of /v1/completions.
//
// Thread safety: one thread at a time.
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/answer/answer_formatter.h"
#include "server/answer/completion_logprobs.h"

namespace quire::server {

class CompletionFormatter : public AnswerFormatter {
 public:
  CompletionFormatter(const GenerationRequest& request, FormatContext context);

  std::string begin() override;
  std::string push(size_t prompt_index, RequestOutput delta) override;
  bool done() const override;

 private:
  // A prompt as the engine's first output gives it, shared by the prompt's choices.
  struct Prompt {
    std::vector<int32_t> token_ids{};
    std::shared_ptr<const std::vector<PositionLogprobs>> logprobs{};  // never null
  };
  // What is new of a choice, or the whole choice.
  struct News {
    std::string text{};
    CompletionLogprobs logprobs{};
    std::vector<int32_t> token_ids{};
    std::shared_ptr<const Prompt> prompt{};  // where the choice begins
  };
  struct Choice {
    int64_t text_offset = 0;  // of the next token in logprobs, in characters
    bool begun = false;
    News whole{};  // where it is not streamed
  };

  std::string echo_of(const std::variant<std::string, std::vector<int32_t>>& prompt) const;
  News news_of(size_t prompt_index, const std::shared_ptr<const Prompt>& prompt,
               CompletionOutput output);
  std::string first_token(const Prompt& prompt) const;
  bool is_plain(const News& news) const;
  void write_events(std::string& out, size_t index, const News& news) const;
  void write_choice_event(std::string& out, size_t index, const News& news, bool last) const;
  void keep(News& whole, News news);
  void add_choice(JsonParts& body, size_t index) override;
  void add_prompt_logprobs(JsonParts& body, const News& whole) const;

  std::vector<Choice> choices_;
  std::vector<std::string> echoes_;  // of each prompt; empty: not asked for
};

}  // namespace quire::server
