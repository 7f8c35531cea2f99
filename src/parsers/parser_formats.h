#pragma once
// How a model writes what it thinks and the tools that it calls, and the names of those formats as
// options (vLLM's names).
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

// What the template with this Jinja source teaches its model to write: what `auto` stands for. Read
// off the markers that the source holds; kNone where it holds none that we know, and where its
// calls are of another kind between the same tags (XML instead of JSON).
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
