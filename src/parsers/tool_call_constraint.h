#pragma once
// What an answer has to be so that the tool calls in it are calls of the functions that there are,
// with arguments of their schemas, in the format that the output parser reads.
//
// Thread safety: pure functions.
#include <span>
#include <string>

#include "parsers/tool_parser_prompt.h"
#include "quire/structured_output.h"

namespace quire {

struct CallableFunction {
  std::string name;
  std::string arguments_schema;  // a JSON Schema of objects
};

// Of an answer that is calls and nothing else: at least one, and just one unless `parallel`.
// `format` is not kNone.
StructuredOutput forced_calls(ToolFormat format, std::span<const CallableFunction> functions,
                              bool parallel);

// Of free text in which calls may come. Only for formats that has_call_trigger().
StructuredOutput optional_calls(ToolFormat format, std::span<const CallableFunction> functions,
                                bool parallel);

// Whether a text always begins a call. In Llama's format a call begins like any other JSON, and is
// one only at the beginning of an answer.
bool has_call_trigger(ToolFormat format);

// Of an answer that is either one call, or JSON of `answer_schema`.
StructuredOutput call_or_json(ToolFormat format, std::span<const CallableFunction> functions,
                              const std::string& answer_schema);

}  // namespace quire
