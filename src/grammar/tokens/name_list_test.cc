#include "grammar/tokens/name_list.h"

#include <gtest/gtest.h>

#include <set>

namespace quire::grammar {
namespace {

TEST(NameListTest, HasWhatWasAddedAndNothingElse) {
  NameList list;
  EXPECT_TRUE(list.is_empty());
  std::vector<NameList> before;
  std::set<std::string> expected;
  for (int i = 0; i < 3000; ++i) {
    before.push_back(list);
    const std::string name = std::to_string(i * i % 2500);
    expected.insert(name);
    list = list.with(name);
  }
  std::set<std::string> found;
  list.for_each([&](std::string_view name) { EXPECT_TRUE(found.emplace(name).second) << name; });
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(list.contains("0"));
  EXPECT_FALSE(list.contains("2"));
  EXPECT_FALSE(list.contains(""));
  // Lists that were copied stay what they were.
  EXPECT_TRUE(before[0].is_empty());
  EXPECT_TRUE(before[3].contains("4"));
  EXPECT_FALSE(before[2].contains("4"));
}

}  // namespace
}  // namespace quire::grammar
