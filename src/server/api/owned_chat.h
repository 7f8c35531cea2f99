#pragma once
// The chat of a request.
//
// Thread safety: a plain value.
#include <utility>

#include "base/json_text.h"
#include "quire/chat_input.h"

namespace quire::server {

// Its destructor allocates nothing, so it works with any amount of data from a client, and with no
// memory left.
struct OwnedChat : ChatInput {
  OwnedChat() = default;
  ~OwnedChat() { clear(); }
  OwnedChat(const OwnedChat& other) : OwnedChat() {
    copy_json(other.messages, messages);
    copy_json(other.tools, tools);
    copy_json(other.template_kwargs, template_kwargs);
    add_generation_prompt = other.add_generation_prompt;
    now = other.now;
  }
  OwnedChat(OwnedChat&&) = default;
  OwnedChat& operator=(OwnedChat other) noexcept {
    messages.swap(other.messages);
    tools.swap(other.tools);
    template_kwargs.swap(other.template_kwargs);
    add_generation_prompt = other.add_generation_prompt;
    now = other.now;
    return *this;
  }

  // Frees the JSON.
  void clear() {
    for (auto* value : {&messages, &tools, &template_kwargs}) clear_json(*value);
  }
};

}  // namespace quire::server
