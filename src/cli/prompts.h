#pragma once
// The prompts of `quire generate`: text, token ids or messages, each with sampling parameters of
// its own.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/json_lines.h"
#include "cli/options/sampling_fields.h"
#include "quire/chat_input.h"

namespace quire::cli {

struct PromptRequest {
  std::string where;  // for messages: "--prompt 2", "prompts.jsonl line 7"
  std::variant<std::string, std::vector<int32_t>, ChatInput> prompt;
  SamplingFields sampling;
  int64_t priority = 0;               // lower goes first
  std::optional<std::string> lora{};  // an adapter's name; empty: none; not set: the command's
};

enum class PromptFormat {
  kText,   // each line is a prompt
  kJsonl,  // each line is an object
};

// The chat of one JSON object: "messages", and if given "tools", "add_generation_prompt" and
// "chat_template_kwargs". The content of messages is checked when they are rendered. Throws Error,
// opening with `where`, for fields of the wrong type.
ChatInput chat_from_json(const Json& object, std::string_view where);
// Whether the field is one of those.
bool is_chat_field(std::string_view name);

// One line of a .jsonl file: exactly one of "prompt", "prompt_token_ids" and "messages", if given
// "priority", "lora", and sampling fields. Throws Error, opening with `where`, for anything else.
PromptRequest prompt_from_json_line(std::string_view line, std::string_view where);

// All prompts of a stream called `name`; blank lines are skipped. Throws Error naming a wrong line,
// or if there is no prompt.
std::vector<PromptRequest> read_prompts(std::istream& in, std::string_view name,
                                        PromptFormat format);

// The prompts of a file: JSON lines if its name ends in .jsonl, else text.
std::vector<PromptRequest> read_prompt_file(const std::string& path);

// "1,2,3". Throws UsageError naming `option`.
std::vector<int32_t> parse_token_ids(const std::string& text, std::string_view option);

}  // namespace quire::cli
