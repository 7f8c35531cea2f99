#include "cli/options/chat_options.h"

#include "base/json_text.h"
#include "cli/options/option_helpers.h"
#include "cli/usage_error.h"

namespace quire::cli {

ChatInput ChatOptions::new_chat() const {
  ChatInput chat;
  if (!system.empty()) chat.messages.push_back({{"role", "system"}, {"content", system}});
  chat.template_kwargs = template_kwargs;
  return chat;
}

void add_chat_options(CLI::App& app, ChatOptions& options) {
  constexpr const char* kGroup = "Chat";
  add_text(app, {"--system", "TEXT", "The system message [none]", kGroup}, options.system);
  add_repeatable(
      app,
      {"--chat-template-kwargs", "JSON",
       "More variables for the chat template, e.g. '{\"enable_thinking\": false}' [none]", kGroup},
      [&options](const std::string& text) {
        try {
          options.template_kwargs.update(parse_json_object(text, "--chat-template-kwargs"));
        } catch (const Error& error) {
          throw UsageError(error.what());
        }
      });
  add_flag(
      app,
      {"--no-think", "",
       "Ask a model that can think (Qwen3) to answer at once: enable_thinking is false", kGroup},
      [&options] { options.template_kwargs["enable_thinking"] = false; });
}

}  // namespace quire::cli
