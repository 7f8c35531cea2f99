#include "cli/terminal/terminal.h"

#include <gtest/gtest.h>

#include <sstream>

namespace quire::cli {
namespace {

TEST(PrintableLine, KeepsTextAndEscapesTheRest) {
  EXPECT_EQ(printable_line("na\u00efve \u4e16 \U0001f600"), "na\u00efve \u4e16 \U0001f600");
  EXPECT_EQ(printable_line("two\nlines\ttab"), "two lines\\x09tab");
  EXPECT_EQ(printable_line("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(printable_line("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable_line("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(printable_line("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable_line("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Styled, NeedsColours) {
  EXPECT_EQ(styled("text", Style::kBold, false), "text");
  EXPECT_EQ(styled("text", Style::kBold, true), "\033[1mtext\033[0m");
}

TEST(PrintError, IsOneLine) {
  std::istringstream in;
  std::ostringstream out;
  std::ostringstream err;
  Terminal terminal{.in = in, .out = out, .err = err};
  print_error(terminal, "a\nb");
  EXPECT_EQ(err.str(), "quire: error: a b\n");
}

}  // namespace
}  // namespace quire::cli
