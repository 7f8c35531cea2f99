#include "engine/failed_answers.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

using std::chrono::seconds;

constexpr FailedAnswers::Clock::time_point kStart{};

TEST(FailedAnswers, RemembersForSomeTime) {
  FailedAnswers failed({.lifetime = seconds(5)});
  EXPECT_EQ(failed.find("a", kStart), std::nullopt);
  failed.add("a", "first", kStart);
  EXPECT_EQ(failed.find("a", kStart + seconds(4)), "first");
  failed.add("a", "second", kStart + seconds(4));
  EXPECT_EQ(failed.find("a", kStart + seconds(8)), "second");
  EXPECT_EQ(failed.find("a", kStart + seconds(9)), std::nullopt);
  EXPECT_EQ(failed.find("a", kStart), std::nullopt) << "it was forgotten";
}

TEST(FailedAnswers, ForgetsTheOldest) {
  FailedAnswers few({.max_kept = 2});
  for (const char* key : {"a", "b", "c"}) few.add(key, "why", kStart);
  EXPECT_EQ(few.find("a", kStart), std::nullopt);
  EXPECT_EQ(few.find("b", kStart), "why");
  FailedAnswers small({.max_kept_bytes = 10});
  small.add("1234", "5", kStart);
  small.add("abcd", "e", kStart);
  EXPECT_EQ(small.find("1234", kStart), "5");
  small.add("x", "", kStart);
  EXPECT_EQ(small.find("1234", kStart), std::nullopt);
  EXPECT_EQ(small.find("abcd", kStart), "e");
  small.add("more than all", "", kStart);
  EXPECT_EQ(small.find("more than all", kStart), std::nullopt);
}

}  // namespace
}  // namespace quire
