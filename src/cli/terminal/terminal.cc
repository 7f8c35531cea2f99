#include "cli/terminal/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "quire/error.h"

namespace quire::cli {
namespace {

// https://no-color.org: set and not empty, whatever its value.
bool colours_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

std::string_view escape_code(Style style) {
  switch (style) {
    case Style::kBold:
      return "\033[1m";
    case Style::kDim:
      return "\033[2m";
    case Style::kRed:
      return "\033[31m";
    case Style::kGreen:
      return "\033[32m";
  }
  return "";
}

// The bytes of the UTF-8 character that `text` opens with, 0 if it opens with none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  size_t length = 2;
  unsigned low = 0x80;   // the range of the second byte rules out
  unsigned high = 0xbf;  // overlong forms, surrogates and what is beyond U+10FFFF
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  } else {
    return 0;
  }
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  }
  return length;
}

}  // namespace

Terminal Terminal::of_process() {
  const bool colours = colours_wanted();
  const bool out = isatty(STDOUT_FILENO) == 1;
  const bool err = isatty(STDERR_FILENO) == 1;
  return {.in = std::cin,
          .out = std::cout,
          .err = std::cerr,
          .in_is_terminal = isatty(STDIN_FILENO) == 1,
          .out_is_terminal = out,
          .err_is_terminal = err,
          .out_colours = out && colours,
          .err_colours = err && colours};
}

std::string styled(std::string_view text, Style style, bool colours) {
  if (!colours) return std::string(text);
  return std::string(escape_code(style)).append(text).append("\033[0m");
}

std::string printable_line(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.front());
    const size_t length = utf8_length(text);
    if (byte == '\n') {
      line += ' ';
    } else if (length == 0 || byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return line;
}

void print_error(Terminal& terminal, std::string_view message) {
  terminal.out.flush();
  terminal.err << "quire: " << styled("error:", Style::kRed, terminal.err_colours) << ' '
               << printable_line(message) << std::endl;
}

void flush(Terminal& terminal) {
  terminal.out.flush();
  if (!terminal.out) throw Error("standard output takes no more: is the disk full?");
}

}  // namespace quire::cli
