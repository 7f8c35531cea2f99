#pragma once
// The options that say how a chat is rendered, shared by generate and chat.
#include <string>

#include "cli/json_lines.h"
#include "quire/chat_input.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct ChatOptions {
  std::string system;  // the system message; empty: none
  Json template_kwargs = Json::object();

  // A chat that opens with the system message, if there is one.
  ChatInput new_chat() const;
};

// Adds --system, --chat-template-kwargs and --no-think. `options` must outlive the app.
void add_chat_options(CLI::App& app, ChatOptions& options);

}  // namespace quire::cli
