#include "speculative/ngram_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace quire::speculative_internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What continuation() is by its definition: looks at every place.
std::vector<int32_t> scan_continuation(const std::vector<int32_t>& text, NgramLengths lengths,
                                       size_t most) {
  for (int length = lengths.max; length >= lengths.min; --length) {
    if (std::ssize(text) < length) continue;
    for (std::ptrdiff_t end = std::ssize(text) - 1; end >= length; --end) {
      if (!std::equal(text.end() - length, text.end(), text.begin() + end - length)) continue;
      std::vector<int32_t> longer = text;
      for (size_t i = 0; i < most; ++i) longer.push_back(longer[static_cast<size_t>(end) + i]);
      return {longer.end() - static_cast<std::ptrdiff_t>(most), longer.end()};
    }
  }
  return {};
}

TEST(NgramIndex, FindsWhatFollowedTheNewestTokensLast) {
  NgramIndex index({.min = 2, .max = 3});
  index.append(std::vector<int32_t>{1, 2, 3, 4, 9, 2, 3, 5, 6});
  EXPECT_THAT(index.continuation(2), IsEmpty());
  index.append(std::vector<int32_t>{2, 3});
  EXPECT_THAT(index.continuation(2), ElementsAre(5, 6));
}

TEST(NgramIndex, ALongerMatchGoesFirst) {
  NgramIndex index({.min = 1, .max = 3});
  index.append(std::vector<int32_t>{1, 2, 3, 4, 9, 2, 3, 5, 6, 1, 2, 3});
  EXPECT_THAT(index.continuation(1), ElementsAre(4));
}

TEST(NgramIndex, GoesOnWithAPeriod) {
  NgramIndex index({.min = 1, .max = 4});
  index.append(std::vector<int32_t>{8, 1, 2, 1, 2});
  EXPECT_THAT(index.continuation(5), ElementsAre(1, 2, 1, 2, 1));
}

TEST(NgramIndex, FindsWhatAScanFinds) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const auto draw = [&random](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const int min = draw(1, 4);
    const NgramLengths lengths = {.min = min, .max = min + draw(0, 4)};
    const int vocab_size = draw(1, 12);
    NgramIndex index(lengths);
    std::vector<int32_t> text;
    while (text.size() < 150) {
      std::vector<int32_t> more(static_cast<size_t>(draw(1, 6)));
      for (int32_t& id : more) id = draw(0, vocab_size - 1);
      index.append(more);
      text.insert(text.end(), more.begin(), more.end());
      const auto most = static_cast<size_t>(draw(1, 9));
      ASSERT_EQ(index.continuation(most), scan_continuation(text, lengths, most))
          << trial << ", at " << text.size();
    }
  }
}

}  // namespace
}  // namespace quire::speculative_internal
