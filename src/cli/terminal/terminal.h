#pragma once
// Where a command reads and writes, and how what it prints may look there.
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

// `text` in that style, or as it is without colours.
std::string styled(std::string_view text, Style style, bool colours);

// `text` in one line of valid UTF-8 that does nothing to a terminal: line feeds become spaces;
// other control characters and bytes that are no UTF-8 become \xNN. Messages quote files, and these
// hold anything.
std::string printable_line(std::string_view text);

// "quire: error: <message>" on standard error, in one line.
void print_error(Terminal& terminal, std::string_view message);

// Writes what is buffered. Throws Error if standard output takes no more (a full disk).
void flush(Terminal& terminal);

}  // namespace quire::cli
