#pragma once
// What a ChatTemplate holds. Immutable once built, so threads and copies share it.
#include <optional>
#include <string>
#include <string_view>

#include "chat/ast.h"
#include "quire/chat_template.h"

namespace quire {

struct ChatTemplate::Impl {
  struct Compiled {
    std::string source;
    chat_internal::Body body;
  };
  static Compiled compile(std::string_view source, const TemplateLimits& limits);

  Compiled main;
  std::optional<Compiled> tool_use;  // for chats with tools
  SpecialTokens special_tokens;
  TemplateLimits limits;
};

}  // namespace quire
