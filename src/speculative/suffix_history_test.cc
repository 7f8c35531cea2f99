#include "speculative/suffix_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace quire::speculative_internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SuffixHistoryLimits kRoom = {.depth = 8, .max_answers = 10, .max_bytes = 1 << 20};

std::vector<int32_t> behind(const SuffixHistory& history, const std::string& salt, int32_t id) {
  return history.after(salt, std::vector<int32_t>{id}, {.most = 2, .factor = 2}).token_ids;
}

TEST(SuffixHistory, SaltsAreApart) {
  SuffixHistory history(kRoom);
  history.add("a", std::vector<int32_t>{1, 2, 3});
  history.add("b", std::vector<int32_t>{1, 4, 5});
  EXPECT_THAT(behind(history, "a", 1), ElementsAre(2, 3));
  EXPECT_THAT(behind(history, "b", 1), ElementsAre(4, 5));
  EXPECT_THAT(behind(history, "", 1), IsEmpty());
}

TEST(SuffixHistory, KeepsAtLeastHalfOfTheAnswersAllowed) {
  for (const int64_t max_answers : {1, 2, 5, 10}) {
    SuffixHistory history({.depth = 8, .max_answers = max_answers, .max_bytes = 1 << 20});
    for (int32_t i = 0; i < 50; ++i) {
      history.add("", std::vector<int32_t>{3 * i, 3 * i + 1, 3 * i + 2});
      EXPECT_LE(history.num_answers(), max_answers);
      EXPECT_THAT(behind(history, "", 3 * i), ElementsAre(3 * i + 1, 3 * i + 2));
      const auto kept = static_cast<int32_t>((max_answers + 1) / 2);
      if (i < kept) continue;
      const int32_t old = 3 * (i - kept + 1);
      EXPECT_THAT(behind(history, "", old), ElementsAre(old + 1, old + 2)) << max_answers;
    }
  }
}

TEST(SuffixHistory, StaysWithinItsBytes) {
  SuffixHistory history({.depth = 8, .max_answers = 1000, .max_bytes = 100'000});
  for (int32_t i = 0; i < 300; ++i) {
    std::vector<int32_t> answer(50);
    for (int32_t j = 0; j < 50; ++j) answer[static_cast<size_t>(j)] = 50 * i + j;
    history.add(std::to_string(i % 20), answer);
    EXPECT_LE(history.bytes(), 100'000u);
  }
  EXPECT_GT(history.num_answers(), 0);
}

TEST(SuffixHistory, AnAnswerThatIsTooLargeIsForgotten) {
  SuffixHistory history({.depth = 8, .max_answers = 10, .max_bytes = 20'000});
  std::vector<int32_t> answer(5'000);
  for (int32_t j = 0; j < 5'000; ++j) answer[static_cast<size_t>(j)] = j;
  history.add("", answer);
  EXPECT_EQ(history.num_answers(), 0);
  EXPECT_EQ(history.bytes(), 0u);
  history.add("", std::vector<int32_t>{1, 2, 3});
  EXPECT_THAT(behind(history, "", 1), ElementsAre(2, 3));
}

}  // namespace
}  // namespace quire::speculative_internal
