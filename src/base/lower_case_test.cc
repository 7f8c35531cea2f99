#include "base/lower_case.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(LowerCase, ChangesAsciiLettersOnly) {
  EXPECT_EQ(lower_case("AZaz@[`{09"), "azaz@[`{09");
  EXPECT_EQ(lower_case("\xc3\x84"), "\xc3\x84");  // a capital letter with an umlaut
  EXPECT_EQ(lower_case(""), "");
}

TEST(LowerCase, ComparesInEitherCase) {
  EXPECT_TRUE(same_in_lower_case("Content-Type", "content-TYPE"));
  EXPECT_FALSE(same_in_lower_case("Content-Type", "Content-Typ"));
  EXPECT_FALSE(same_in_lower_case("a", "b"));
}

}  // namespace
}  // namespace quire
