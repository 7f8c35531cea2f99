#pragma once
// What the end of a rendered prompt says about thinking, and what is appended to open or close it.
//
// An answer that is to be a call at once does not think before: thinking is closed as the template
// itself does for enable_thinking=false.
//
// Thread safety: pure functions.
#include <string>
#include <string_view>

#include "parsers/parser_formats.h"

namespace quire {

enum class ToolChoice { kNone, kAuto, kRequired, kNamed };

// What a rendered prompt leaves to the model.
enum class PromptThinking {
  kNotStarted,  // the model may open <think> itself
  kOpen,        // the prompt ends inside of <think>: the answer goes on with reasoning
  kClosed,  // the prompt has closed </think>, or thinking is not of this format: content follows
};

// Looks at the last turn of `prompt` only: what users wrote before it does not matter.
PromptThinking thinking_at_end_of(std::string_view prompt, ReasoningFormat format);

// The text behind which content follows.
inline constexpr const char* kThinkingEnd = "</think>";

// Text that begins thinking when appended to `prompt`; empty unless that is kNotStarted.
std::string thinking_opener(ReasoningFormat format, std::string_view prompt);

// Text that ends thinking when appended to `prompt`; empty where it is closed already.
std::string thinking_closer(ReasoningFormat format, std::string_view prompt);

}  // namespace quire
