#include "base/utf8.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

std::string utf8_of(char32_t code_point) {
  std::string text = "x";
  append_utf8(text, code_point);
  return text;
}

TEST(Utf8, WritesTheFirstAndTheLastOfEachLength) {
  EXPECT_EQ(utf8_of(0), std::string("x\0", 2));
  EXPECT_EQ(utf8_of(0x7f), "x\x7f");
  EXPECT_EQ(utf8_of(0x80), "x\xc2\x80");
  EXPECT_EQ(utf8_of(0x7ff), "x\xdf\xbf");
  EXPECT_EQ(utf8_of(0x800), "x\xe0\xa0\x80");
  EXPECT_EQ(utf8_of(0xffff), "x\xef\xbf\xbf");
  EXPECT_EQ(utf8_of(0x10000), "x\xf0\x90\x80\x80");
  EXPECT_EQ(utf8_of(0x10ffff), "x\xf4\x8f\xbf\xbf");
}

TEST(Utf8, CountsTheCharactersThatBegin) {
  EXPECT_EQ(num_characters(""), 0u);
  EXPECT_EQ(num_characters("a\xc3\xa9\xf0\x9f\x98\x80z"), 4u);
  EXPECT_EQ(num_characters("\xa9\x80"), 0u);      // the rest of one
  EXPECT_EQ(num_characters("\x98\x80\xe2"), 1u);  // and one that has begun
}

}  // namespace
}  // namespace quire
