#pragma once
// Names and texts of a grammar or schema, as sentences about them show them.
//
// Thread safety: a free function.
#include <string>
#include <string_view>

namespace quire::grammar {

// The text with its control characters escaped as JSON has them, as an Error's sentence would end
// at a NUL and break at a line's end.
std::string visible_text(std::string_view text);

}  // namespace quire::grammar
