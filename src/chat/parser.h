#pragma once
// Builds the tree of a template from its tokens: Jinja's grammar without inheritance and imports.
#include <string_view>

#include "chat/ast.h"
#include "quire/chat_template.h"

namespace quire::chat_internal {

// Parses `source`. Throws Error, naming the line, for a malformed template, for an unknown tag, and
// for an unknown filter or test outside of every {% if %} (inside one it is an error only where it
// is reached, as in Jinja).
Body parse_template(std::string_view source, const TemplateLimits& limits);

}  // namespace quire::chat_internal
