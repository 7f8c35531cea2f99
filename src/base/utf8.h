#pragma once
// Writes characters as UTF-8.
//
// Thread safety: a free function.
#include <string>

namespace quire {

// Appends a code point, at most U+10FFFF; one of a surrogate has three bytes that are not valid
// UTF-8.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace quire
