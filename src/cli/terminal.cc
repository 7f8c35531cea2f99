#include "cli/terminal.h"

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

void flush(Terminal& terminal) {
  terminal.out.flush();
  if (!terminal.out) throw Error("standard output takes no more: is the disk full?");
}

}  // namespace quire::cli
