#include "cli/terminal/text_format.h"

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

TEST(WithCommas, GroupsThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(142827), "142,827");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
}

TEST(FormatBytes, KeepsThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(int64_t{12} << 20), "12.0 MiB");
  EXPECT_EQ(format_bytes(int64_t{200} << 30), "200 GiB");
  EXPECT_EQ(format_bytes(int64_t{5000} << 40), "5000 TiB");
}

TEST(Table, PrintsNothingThatActsOnATerminal) {
  Table table({Table::Align::kLeft, Table::Align::kLeft});
  table.add({"name", "a\nb\x1b[31m"});
  EXPECT_EQ(table.str(), "  name  a b\\x1b[31m\n");
}

TEST(Table, AlignsColumns) {
  Table table({Table::Align::kLeft, Table::Align::kRight, Table::Align::kLeft});
  table.add({"weights", "1.2 GiB", "bfloat16"});
  table.add({"kv", "12.0 GiB", ""});
  EXPECT_EQ(table.str(),
            "  weights   1.2 GiB  bfloat16\n"
            "  kv       12.0 GiB\n");
}

}  // namespace
}  // namespace quire::cli
