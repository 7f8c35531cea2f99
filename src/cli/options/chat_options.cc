#include "cli/options/chat_options.h"

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
  app.add_option("--system", options.system, "The system message [none]")
      ->type_name("TEXT")
      ->group(kGroup);
  app.add_option_function<std::string>(
         "--chat-template-kwargs",
         [&options](const std::string& text) {
           try {
             options.template_kwargs.update(parse_json_object(text, "--chat-template-kwargs"));
           } catch (const Error& error) {
             throw UsageError(error.what());
           }
         },
         "More variables for the chat template, e.g. '{\"enable_thinking\": false}' [none]")
      ->type_name("JSON")
      ->trigger_on_parse()
      ->group(kGroup);
  app.add_flag_callback(
         "--no-think", [&options] { options.template_kwargs["enable_thinking"] = false; },
         "Ask a model that can think (Qwen3) to answer at once: enable_thinking is false")
      ->group(kGroup);
}

}  // namespace quire::cli
