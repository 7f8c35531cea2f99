#pragma once
// Where a command reads and writes, and whether its output may have colours.
//
// Commands get this as an argument, so that tests can run them on strings.
#include <iosfwd>
#include <string>
#include <string_view>

namespace quire::cli {

struct Terminal {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool out_colours = false;  // a terminal, and NO_COLOR is unset
  bool err_colours = false;

  // The process's own streams.
  static Terminal of_process();
};

enum class Style { kBold, kDim, kRed, kGreen };

// `text` in that style, or unchanged without colours.
std::string styled(std::string_view text, Style style, bool colours);

// `text` as one line of valid UTF-8 without effect on a terminal: line feeds become spaces; other
// control characters and invalid UTF-8 become \xNN. Messages quote files, which may contain
// anything.
std::string printable_line(std::string_view text);

// "quire: error: <message>" on standard error, in one line.
void print_error(Terminal& terminal, std::string_view message);

// Writes what is buffered. Throws Error if standard output takes no more (a full disk).
void flush(Terminal& terminal);

}  // namespace quire::cli
