#include "grammar/visible_text.h"

#include <fmt/format.h>

namespace quire::grammar {

std::string visible_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace quire::grammar
