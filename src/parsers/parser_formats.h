#pragma once
// The formats in which models write reasoning and tool calls, and their names as options (vLLM's
// names).
//
// Thread safety: plain values and pure functions.
#include <optional>
#include <string_view>
#include <vector>

namespace quire {

enum class ReasoningFormat {
  kNone,   // an answer is content only
  kQwen3,  // <think>\n…\n</think>\n\n, then the content
};

enum class ToolFormat {
  kNone,    // an answer holds no calls
  kHermes,  // <tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>   (Qwen2.5, Qwen3, Hermes)
  kLlama3Json,  // {"name": …, "parameters": {…}}, optionally after <|python_tag|>; several with ";"
};

struct OutputFormats {
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  ToolFormat tools = ToolFormat::kNone;
};

// The formats that the template with this Jinja source teaches its model, for `auto`. Detected by
// the markers in the source. kNone where it has no marker that we know, and where its calls are of
// another kind between the same tags (XML instead of JSON).
OutputFormats detect_formats(std::string_view template_source);

// "none", "qwen3"; "none", "hermes", "llama3_json".
std::string_view name_of(ReasoningFormat format);
std::string_view name_of(ToolFormat format);

// The format of that name, for `--reasoning-parser` and `--tool-call-parser`; "auto" takes the
// detected one. Throws Error naming the option and the choices for an unknown name.
ReasoningFormat reasoning_format_of(std::string_view name, const OutputFormats& detected);
ToolFormat tool_format_of(std::string_view name, const OutputFormats& detected);

// The names that the options take, "auto" first: for their help and for completion.
std::vector<std::string_view> reasoning_format_names();
std::vector<std::string_view> tool_format_names();

}  // namespace quire
