#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(StopMatcher, FindsAStopThatArrivesInPieces) {
  const std::vector<std::string> stops{"END"};
  StopMatcher matcher(stops);
  EXPECT_FALSE(matcher.find("some text E"));
  EXPECT_FALSE(matcher.find("some text EN"));
  const auto match = matcher.find("some text END and more");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->begin, 10u);
  EXPECT_EQ(match->end, 13u);
}

TEST(StopMatcher, TakesTheEarliestThenTheLongest) {
  const std::vector<std::string> stops{"b", "ab", "abc"};
  StopMatcher matcher(stops);
  const auto match = matcher.find("xxabcb");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->begin, 2u);
  EXPECT_EQ(match->end, 5u);
}

TEST(StopMatcher, DoesNotMatchWhatWasSkipped) {
  const std::vector<std::string> stops{"ab"};
  StopMatcher matcher(stops);
  matcher.skip("ab");
  EXPECT_FALSE(matcher.find("abx"));
  EXPECT_TRUE(matcher.find("abxab"));
}

TEST(StopMatcher, HoldsBackWhatMayBecomeAStop) {
  const std::vector<std::string> stops{"<end>", "xy"};
  const StopMatcher matcher(stops);
  EXPECT_EQ(matcher.safe_length("hello"), 5u);
  EXPECT_EQ(matcher.safe_length("hello<e"), 5u);
  EXPECT_EQ(matcher.safe_length("hello x"), 6u);
  EXPECT_EQ(matcher.safe_length("<en"), 0u);
}

}  // namespace
}  // namespace quire
