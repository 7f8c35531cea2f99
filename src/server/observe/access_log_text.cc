#include "server/observe/access_log_text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <optional>

#include "base/utf8.h"

namespace quire::server {
namespace {

struct Character {
  size_t bytes = 1;
  std::optional<char32_t> code{};  // none: the byte is no UTF-8
};

// The first character of `text`, which is not empty, by RFC 3629: no overlong forms, no surrogates.
Character first_character(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const size_t bytes = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (bytes == 0 || bytes > text.size()) return {};
  char32_t code = lead & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {bytes, code};
}

// Characters that act on a terminal or a reader instead of showing: controls, separators of lines,
// marks and overrides of direction, the byte order mark and tags.
bool is_harmful(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0xAD || code == 0x061C ||
         (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF ||
         (code >= 0xFFF9 && code <= 0xFFFB) || (code >= 0xE0000 && code <= 0xE007F);
}

void append_json_escape(std::string& out, char32_t code) {
  if (code <= 0xFFFF) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(code));
    return;
  }
  const uint32_t rest = static_cast<uint32_t>(code) - 0x10000;
  fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10),
                 0xDC00 + (rest & 0x3FF));
}

// Appends the escape of what is no plain character; false where `character` is one.
bool append_readable_escape(std::string& out, std::string_view text, const Character& character) {
  if (!character.code) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint8_t>(text.front()));
  } else if (*character.code == '\n') {
    out += "\\n";
  } else if (*character.code == '\t') {
    out += "\\t";
  } else if (is_harmful(*character.code)) {
    fmt::format_to(std::back_inserter(out), "\\u{{{:x}}}", static_cast<uint32_t>(*character.code));
  } else {
    return false;
  }
  return true;
}

bool is_one_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:+@~%,{}";
  return !text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos;
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const Character character = first_character(text);
    if (!character.code) {
      out += "\\ufffd";
    } else if (*character.code == '"' || *character.code == '\\') {
      out += '\\';
      out += text.front();
    } else if (is_harmful(*character.code)) {
      append_json_escape(out, *character.code);
    } else {
      out += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  out += '"';
}

void append_sentence(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const Character character = first_character(text);
    if (!append_readable_escape(out, text, character)) out += text.substr(0, character.bytes);
    text.remove_prefix(character.bytes);
  }
}

void append_readable(std::string& out, std::string_view text) {
  if (is_one_word(text)) {
    out += text;
    return;
  }
  out += '"';
  while (!text.empty()) {
    const Character character = first_character(text);
    if (!append_readable_escape(out, text, character)) {
      if (text.front() == '"' || text.front() == '\\') out += '\\';
      out += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  out += '"';
}

std::string cut_text(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes;
  // Back over continuation bytes, so that no character is split; invalid UTF-8 may have any number.
  for (int i = 0; i < 3 && end > 0 && !begins_character(static_cast<uint8_t>(text[end])); ++i)
    --end;
  return std::string(text.substr(0, end)) + "…";
}

std::string format_time(std::chrono::system_clock::time_point time) {
  using std::chrono::floor;
  const auto seconds = floor<std::chrono::seconds>(time);
  const auto milliseconds = floor<std::chrono::milliseconds>(time - seconds).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), milliseconds);
}

}  // namespace quire::server
