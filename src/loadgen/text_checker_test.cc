#include "loadgen/text_checker.h"

#include <gtest/gtest.h>

namespace quire::loadgen {
namespace {

LoadRequest request(std::string body, std::optional<std::string> expected = {}) {
  LoadRequest request;
  request.path = "/v1/completions";
  request.body = std::move(body);
  request.expected_text = std::move(expected);
  return request;
}

TEST(TextChecker, LooksAtNothingUnlessAsked) {
  TextChecker checker({request("a")}, false);
  EXPECT_FALSE(checker.active());
  EXPECT_FALSE(checker.check(0, "x"));
  EXPECT_FALSE(checker.check(0, "y"));
}

TEST(TextChecker, ComparesWithTheFirstText) {
  TextChecker checker({request("a"), request("b")}, true);
  EXPECT_TRUE(checker.active());
  EXPECT_FALSE(checker.check(0, "the cat"));
  EXPECT_FALSE(checker.check(1, "a dog"));
  EXPECT_FALSE(checker.check(0, "the cat"));
  const auto mismatch = checker.check(0, "the car");
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->request, 0);
  EXPECT_EQ(mismatch->byte, 6);
  EXPECT_EQ(mismatch->expected, "the cat");
  EXPECT_EQ(mismatch->got, "the car");
}

TEST(TextChecker, TheSameBodyOnTwoLinesIsTheSamePrompt) {
  TextChecker checker({request("a"), request("a")}, true);
  EXPECT_FALSE(checker.check(0, "x"));
  EXPECT_TRUE(checker.check(1, "y"));
}

TEST(TextChecker, ComparesWithTheExpectedText) {
  TextChecker checker({request("a", "x"), request("b")}, false);
  EXPECT_TRUE(checker.active());
  EXPECT_FALSE(checker.check(0, "x"));
  EXPECT_TRUE(checker.check(0, "x and more"));
  EXPECT_TRUE(checker.check(0, ""));
  EXPECT_FALSE(checker.check(1, "p"));
  EXPECT_FALSE(checker.check(1, "q"));
}

TEST(TextChecker, ShowsTheTextAroundTheDifference) {
  const std::string same(1000, 's');
  TextChecker checker({request("a", same + "1" + same)}, false);
  const auto mismatch = checker.check(0, same + "2");
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->byte, 1000);
  EXPECT_EQ(mismatch->got, std::string(20, 's') + "2");
  EXPECT_EQ(mismatch->expected, std::string(20, 's') + "1" + std::string(59, 's'));
}

}  // namespace
}  // namespace quire::loadgen
