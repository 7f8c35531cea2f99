#pragma once
// Turns the messages of a chat into the prompt that a model was trained on.
//
// A ChatTemplate is a model's own Jinja template, compiled once. It renders as Hugging Face's
// `apply_chat_template` does: the same variables, the same whitespace settings, the same text.
// Rendering is const and keeps no state, so one object may serve any number of threads. Copies
// share the compiled template.
//
// Templates and messages are untrusted: TemplateLimits bound every render, and errors in a template
// or a message are a quire::Error that names the line or the message.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/text_span.h"

namespace quire {

struct ChatInput;  // quire/chat_input.h

// What one render may use. A template that needs more is stopped with an Error that names the
// limit.
struct TemplateLimits {
  std::size_t max_source_bytes = 1 << 20;    // length of the template itself
  std::size_t max_output_bytes = 16 << 20;   // length of the rendered text
  std::size_t max_string_bytes = 16 << 20;   // length of any one string on the way
  std::size_t max_list_items = 1 << 20;      // items of any one list or dictionary
  std::size_t max_memory_bytes = 256 << 20;  // all strings and lists alive at one time
  std::uint64_t max_steps = 20'000'000;      // expressions and statements evaluated, items and
                                             // every 16 bytes of text handled
  int max_nesting = 100;                     // depth of blocks and brackets in the source
  int max_depth = 800;                       // depth of evaluation: macro calls, nested values
};

// A prompt, and which of its bytes came from the chat (its messages, tools and template_kwargs)
// rather than from the template: spans in order that do not touch.
struct RenderedChat {
  std::string text{};
  std::vector<TextSpan> from_messages{};
};

class ChatTemplate {
 public:
  // Names of special tokens (bos_token, eos_token, ...) and their text, as the template sees them.
  using SpecialTokens = std::map<std::string, std::string>;

  // Compiles `source`. Throws Error with the line where it is no valid template, and for a tag,
  // filter or test that is not supported.
  explicit ChatTemplate(std::string_view source, SpecialTokens special_tokens = {},
                        TemplateLimits limits = {});

  // Reads a model folder: the template from chat_template.jinja, else from "chat_template" in
  // tokenizer_config.json. That is a string or a list of {"name", "template"}; from a list,
  // "tool_use" serves chats with tools and "default" the others. Special tokens come from
  // tokenizer_config.json. Throws Error naming the file and field where there is no template or it
  // is malformed.
  static ChatTemplate from_folder(const std::filesystem::path& folder, TemplateLimits limits = {});

  // Whether `folder` has a chat template, well-formed or not. A base model has none.
  static bool exists_in(const std::filesystem::path& folder);

  // The prompt. Throws Error for malformed input (naming the message's index and field), for what
  // the template itself refuses (raise_exception), for errors in the template (naming the line),
  // and where a limit is reached. Encode the text without adding special tokens: the template
  // writes them.
  std::string render(const ChatInput& input) const;

  // The same, with the origin of each byte for Tokenizer::encode(), so that no message can write a
  // special token that only the template may write.
  RenderedChat render_marked(const ChatInput& input) const;

  // The source of the template that a chat without tools gets.
  const std::string& source() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace quire
