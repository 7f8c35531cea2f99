#pragma once
// What is appended to a rendered prompt to make the model call a tool, and what the end of a prompt
// says about thinking.
//
// tool_choice "required" or a named function begins the call in the model's place. Where the model
// may think first, thinking is closed before that, as the template itself does for
// enable_thinking=false, since a call inside of <think> is no call:
//
//   const PromptThinking thinking = thinking_at_end_of(prompt, reasoning);
//   const std::string call = forced_prefix(tools, choice, name);
//   if (!call.empty()) prompt += thinking_closer(reasoning, prompt) + call;
//   OutputParserConfig config{reasoning, thinking, tools, parallel, call, ids};
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

// The beginning of a call: up to the name's opening quote for kRequired, up to the arguments for
// kNamed (`name` is written as JSON). Empty for kNone and kAuto, and for ToolFormat::kNone, which
// cannot force a call: refuse such requests.
std::string forced_prefix(ToolFormat format, ToolChoice choice, std::string_view name = {});

}  // namespace quire
