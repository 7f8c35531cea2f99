#pragma once
// Constraints on answers with tool calls: calls only of the given functions, with arguments that
// follow their schemas, in the format that the output parser reads.
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

// For an answer that consists of calls: at least one, and just one unless `parallel`. `format` is
// not kNone.
StructuredOutput forced_calls(ToolFormat format, std::span<const CallableFunction> functions,
                              bool parallel);

// For free text in which calls may come. In Llama's format a call begins like any other JSON: it is
// one from its function's name on, {"name": "f" as forced_calls() write it.
StructuredOutput optional_calls(ToolFormat format, std::span<const CallableFunction> functions,
                                bool parallel);

// For an answer that is either one call, or JSON that follows `answer_schema`.
StructuredOutput call_or_json(ToolFormat format, std::span<const CallableFunction> functions,
                              const std::string& answer_schema);

}  // namespace quire
