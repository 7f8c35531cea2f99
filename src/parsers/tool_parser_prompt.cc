#include "parsers/tool_parser_prompt.h"

namespace quire {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = kThinkingEnd;
constexpr std::string_view kTurn = "<|im_start|>";
constexpr std::string_view kEndOfTurn = "<|im_end|>";
constexpr std::string_view kAssistant = "assistant\n";

// What the prompt leaves open of an assistant's turn in ChatML; empty where it ends with another's
// turn.
std::string_view open_turn(std::string_view prompt, std::size_t turn) {
  prompt.remove_prefix(turn + kTurn.size());
  const bool open = prompt.starts_with(kAssistant) && prompt.find(kEndOfTurn) == prompt.npos;
  return prompt.substr(open ? kAssistant.size() : prompt.size());
}

std::string_view without_trailing_newlines(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

// For templates that are not ChatML: what the last tag says, if the prompt ends with one.
PromptThinking thinking_at_end_of_text(std::string_view prompt) {
  prompt = without_trailing_newlines(prompt);
  if (prompt.ends_with(kOpen)) return PromptThinking::kOpen;
  return prompt.ends_with(kClose) ? PromptThinking::kClosed : PromptThinking::kNotStarted;
}

}  // namespace

PromptThinking thinking_at_end_of(std::string_view prompt, ReasoningFormat format) {
  if (format == ReasoningFormat::kNone) return PromptThinking::kClosed;
  const std::size_t last_turn = prompt.rfind(kTurn);
  if (last_turn == prompt.npos) return thinking_at_end_of_text(prompt);
  const std::string_view turn = open_turn(prompt, last_turn);
  if (turn.empty()) return PromptThinking::kNotStarted;
  const std::size_t open = turn.rfind(kOpen);
  const std::size_t close = turn.rfind(kClose);
  if (open == turn.npos) return PromptThinking::kClosed;  // the turn goes on with content
  return close == turn.npos || close < open ? PromptThinking::kOpen : PromptThinking::kClosed;
}

std::string thinking_opener(ReasoningFormat format, std::string_view prompt) {
  const bool may_think = thinking_at_end_of(prompt, format) == PromptThinking::kNotStarted;
  return may_think ? "<think>\n" : "";
}

std::string thinking_closer(ReasoningFormat format, std::string_view prompt) {
  switch (thinking_at_end_of(prompt, format)) {
    case PromptThinking::kClosed:
      return {};
    case PromptThinking::kNotStarted:
      return "<think>\n\n</think>\n\n";
    case PromptThinking::kOpen:
      break;
  }
  if (prompt.ends_with(kOpen)) return "\n\n</think>\n\n";
  const bool thought = !without_trailing_newlines(prompt).ends_with(kOpen);
  return thought && prompt.ends_with('\n') ? "</think>\n\n" : "\n</think>\n\n";
}

}  // namespace quire
