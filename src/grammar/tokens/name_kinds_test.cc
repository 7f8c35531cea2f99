#include "grammar/tokens/name_kinds.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>
#include <vector>

#include "grammar/regex.h"

namespace quire::grammar {
namespace {

class NameKindsTest : public testing::Test {
 protected:
  int pattern(const char* text) {
    return strings_.add(compile_regex_dfa(text, RegexMatch::kAnywhere, budget_));
  }

  Budget budget_{CompileLimits{}};
  DfaStore strings_{budget_, utf8_dfa};
};

TEST_F(NameKindsTest, DifferInThePatternsThatMatch) {
  ObjectAlternative object;
  object.patterns = {pattern("^a"), pattern("b")};
  object.others = {{0, {1}}, {1, {2}}, {2, {3}}};  // none has both
  const std::array<const ObjectAlternative*, 1> ways = {&object};
  NameKinds kinds(ways, strings_);
  const auto goals = [&](std::string_view written, std::string_view rest) {
    return kinds.goals(kinds.kind_of(kinds.begin(written), rest))[0];
  };
  EXPECT_EQ(*goals("", "x"), ChildGoals{1});
  EXPECT_EQ(*goals("a", "x"), ChildGoals{2});
  EXPECT_EQ(*goals("x", "ab"), ChildGoals{3});
  EXPECT_EQ(goals("a", "b"), nullptr);
  EXPECT_EQ(kinds.kind_of(kinds.begin("x"), "y"), kinds.kind_of(kinds.begin(""), "\xc3\xa9"));
  EXPECT_EQ(kinds.size(), 4U);
}

// What is asked of the values counts, for each way to read the object.
TEST_F(NameKindsTest, AreOneWhereTheGoalsAreAlike) {
  ObjectAlternative first;
  first.patterns = {pattern("^a"), pattern("b")};
  first.others = {{0, {1}}, {1, {7}}, {2, {7}}, {3, {7}}};
  ObjectAlternative second;
  second.patterns = {first.patterns[1]};
  second.others = {{0, {1}}, {1, {1}}};
  ObjectAlternative third;
  third.others = {{0, {5}}};
  const std::array<const ObjectAlternative*, 4> ways = {&first, &second, &third, &first};
  NameKinds kinds(ways, strings_);
  const NameKinds::Begun begun = kinds.begin("");
  const size_t matching = kinds.kind_of(begun, "a");
  EXPECT_EQ(kinds.kind_of(begun, "b"), matching);
  EXPECT_EQ(kinds.kind_of(begun, "ab"), matching);
  EXPECT_NE(kinds.kind_of(begun, "c"), matching);
  EXPECT_EQ(kinds.size(), 2U);
  std::vector<int> goals;
  for (const ChildGoals* one : kinds.goals(matching)) goals.push_back(one->front());
  EXPECT_EQ(goals, (std::vector<int>{7, 1, 5, 7}));
}

}  // namespace
}  // namespace quire::grammar
