#pragma once
// Splits the text of one choice, as it streams, into content, reasoning and tool calls.
//
// push() takes the next piece of text and returns what has become certain; finish() returns what
// was held back. The sum of all deltas does not depend on how the text is cut into pieces. Time is
// linear in the text's length; what is held back is bounded (kMaxHeldBytes). Any bytes are accepted
// and nothing throws.
//
// Reasoning (kQwen3): an answer that begins with <think>, or whose prompt left <think> open, is
// reasoning up to </think>. A <think> anywhere else is content.
//
// Tool calls: an object counts as a call once its "name" (a string) is complete and its "arguments"
// or "parameters" have begun with "{"; keys may come in any order, and others are ignored. From
// then on:
//   - the first delta has the id and the name; all `arguments` pieces together are exactly the text
//     that the model wrote from "{" to the matching "}";
//   - arguments that are no valid JSON, or end early, are given as written, since their beginning
//     has been streamed. (vLLM gives such a call as content where it does not stream, and drops the
//     rest of it where it does.) In the hermes format </tool_call> ends them where their brackets
//     do not: outside of strings anywhere, inside of an unterminated string at the beginning of a
//     line, since no JSON string holds a line break.
// Text that only begins like a call is content in full, its tags included.
//
// The format's own text is dropped: tags, the object around name and arguments, ";" between calls,
// white space within all these, and newlines next to them. Every other byte comes out once, and
// nothing else does.
//
// Llama's format has no tag that a call must begin with: an object counts only at the beginning of
// the answer, after <|python_tag|>, or after another call (";" between them or not).
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/parser_formats.h"
#include "parsers/tool_parser_prompt.h"

namespace quire {

struct ToolCallDelta {
  int index = 0;          // which call of the choice, from 0
  std::string id;         // first delta of a call only
  std::string name;       // first delta of a call only
  std::string arguments;  // a piece of JSON text; may be empty in the first delta
};

struct ParsedDelta {
  std::string content;
  std::string reasoning;
  std::vector<ToolCallDelta> tool_calls;  // by index, each index once

  bool empty() const { return content.empty() && reasoning.empty() && tool_calls.empty(); }
};

// Gives each call its id.
using ToolCallIds = std::function<std::string()>;

// "call_" and 24 hexadecimal digits, the same sequence for the same seed. Servers seed each choice
// from std::random_device.
ToolCallIds tool_call_ids(std::uint64_t seed);

// The most bytes held back while text may still become a call, before its name and arguments are
// known; longer text is content.
inline constexpr std::size_t kMaxHeldBytes = 64 << 10;

struct OutputParserConfig {
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  PromptThinking thinking = PromptThinking::kNotStarted;  // as the rendered prompt left it
  ToolFormat tools = ToolFormat::kNone;  // kNone where no tools were given, or tool_choice is none
  // false: only the first call is given, and all that follows it is dropped, as in vLLM.
  bool parallel_tool_calls = true;
  ToolCallIds next_tool_call_id;  // needed where tools is not kNone
};

class OutputParser {
 public:
  virtual ~OutputParser() = default;

  virtual ParsedDelta push(std::string_view text) = 0;
  // Ends the answer. Called once; no push() after it.
  virtual ParsedDelta finish() = 0;
  // Whether any call has been given out.
  virtual bool has_tool_calls() const = 0;
  // Whether nothing that follows can change the result, because the only call allowed is complete:
  // the request may be ended.
  virtual bool done() const = 0;
};

std::unique_ptr<OutputParser> make_output_parser(OutputParserConfig config);

}  // namespace quire
