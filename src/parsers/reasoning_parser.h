#pragma once
// Takes the reasoning out of an answer: <think>\n…\n</think>\n\n, then the content.
//
// output_parser.h has the contract. Thread safety: one thread at a time.
#include <cstddef>
#include <string>
#include <string_view>

#include "parsers/tool_parser_prompt.h"

namespace quire::parsers_internal {

class ReasoningParser {
 public:
  explicit ReasoningParser(PromptThinking thinking);

  // Appends what has become certain.
  void push(std::string_view text, std::string& reasoning, std::string& content);
  // Appends what was held back.
  void finish(std::string& reasoning, std::string& content);

 private:
  enum class Place {
    kStart,         // <think> may come, after white space
    kReasoning,     // up to </think>
    kContentStart,  // newlines are dropped
    kContent,
  };

  void at_start(char c, std::string& reasoning, std::string& content);
  void give_start(std::string& reasoning, std::string& content);
  void in_reasoning(char c, std::string& reasoning);
  void add_reasoning(std::string_view text, std::string& reasoning);
  std::size_t skip_newlines(std::string_view text);

  bool open_;  // the prompt opened <think> already
  Place place_;
  std::string held_;          // at the start: white space and the beginning of <think>
  std::size_t tag_ = 0;       // bytes of the tag that have come
  std::size_t newlines_ = 0;  // in reasoning: newlines before the tag, dropped if it is one
  bool reasoning_begun_ = false;
};

}  // namespace quire::parsers_internal
