#pragma once
// Names and texts of a grammar or schema in the form in which messages show them.
//
// Thread safety: a free function.
#include <string>
#include <string_view>

namespace quire::grammar {

// The text with its control characters escaped as in JSON, because a NUL would end an Error's
// sentence and a line feed would break it.
std::string visible_text(std::string_view text);

}  // namespace quire::grammar
