#pragma once
// The prompt of a chat.
//
// Thread safety: free functions.
#include <string>

#include "quire/chat_template.h"
#include "server/api/generation_request.h"
#include "server/api/owned_chat.h"

namespace quire::server {

// Renders `chat`. With `continue_final_message` the prompt ends right after the last message's
// content, as with transformers' apply_chat_template, so that the answer continues it. Throws
// ApiError 400 for what the template refuses, and where the last message's content cannot be found
// in the rendered text.
RenderedChat render_chat(const ChatTemplate& chat_template, const OwnedChat& chat,
                         bool continue_final_message);

// The same for a request of kind kChat.
RenderedChat render_prompt(const ChatTemplate& chat_template, const GenerationRequest& request);

// The text with which the answer to a chat begins: with `echo`, the last message if it is the
// assistant's; else nothing.
std::string echoed_message(const GenerationRequest& request);

}  // namespace quire::server
