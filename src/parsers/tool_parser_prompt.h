#pragma once
// Whether the end of a rendered prompt opens or closes thinking, and the text to append to do so.
//
// An answer that is forced to begin with a call does not think first: thinking is closed as the
// template itself does for enable_thinking=false.
//
// Thread safety: pure functions.
#include <string>
#include <string_view>

#include "parsers/parser_formats.h"

namespace quire {

enum class ToolChoice { kNone, kAuto, kRequired, kNamed };

// The state of thinking at the end of a rendered prompt.
enum class PromptThinking {
  kNotStarted,  // the model may open <think> itself
  kOpen,        // the prompt ends inside of <think>: the answer goes on with reasoning
  kClosed,  // the prompt has closed </think>, or thinking is not of this format: content follows
};

// Looks only at the last turn of `prompt`: users' earlier text does not matter.
PromptThinking thinking_at_end_of(std::string_view prompt, ReasoningFormat format);

// The text behind which content follows.
inline constexpr const char* kThinkingEnd = "</think>";

// Text to append to `prompt` so that it begins thinking; empty unless the prompt is kNotStarted.
std::string thinking_opener(ReasoningFormat format, std::string_view prompt);

// Text to append to `prompt` so that it ends thinking; empty where thinking is closed already.
std::string thinking_closer(ReasoningFormat format, std::string_view prompt);

}  // namespace quire
