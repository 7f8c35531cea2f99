#include "speculative/suffix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace quire::speculative_internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Texts = std::vector<std::vector<int32_t>>;

constexpr SuffixLimits kAll = {.most = 16, .factor = 16, .min_token_prob = 0};

void append_all(SuffixTree& tree, const std::vector<int32_t>& token_ids) {
  for (const int32_t id : token_ids) tree.append(id);
}

// How often a path occurs, where it last does, and what follows it.
struct Occurrences {
  uint32_t count = 0;
  std::map<int32_t, uint32_t> followers;
  int32_t best = -1;  // the most frequent follower, of equals that seen last
};

Occurrences scan(const Texts& texts, const std::vector<int32_t>& path) {
  Occurrences found;
  std::map<int32_t, size_t> last;
  size_t now = 0;
  for (const std::vector<int32_t>& text : texts) {
    for (size_t begin = 0; begin + path.size() <= text.size(); ++begin, ++now) {
      const auto first = text.begin() + static_cast<std::ptrdiff_t>(begin);
      if (!std::equal(path.begin(), path.end(), first)) continue;
      ++found.count;
      if (begin + path.size() == text.size()) continue;
      const int32_t follower = text[begin + path.size()];
      ++found.followers[follower];
      last[follower] = now;
    }
  }
  for (const auto& [token_id, count] : found.followers) {
    const bool better = found.best < 0 || count > found.followers[found.best] ||
                        (count == found.followers[found.best] && last[token_id] > last[found.best]);
    if (better) found.best = token_id;
  }
  return found;
}

// What the tree gives, by its definition.
SuffixDrafts scan_after(const Texts& texts, const std::vector<int32_t>& suffix, bool own,
                        size_t depth, const SuffixLimits& limits) {
  SuffixDrafts best;
  for (size_t length = std::min(depth, suffix.size()); length > 0; --length) {
    std::vector<int32_t> path(suffix.end() - static_cast<std::ptrdiff_t>(length), suffix.end());
    SuffixDrafts drafts;
    double probability = 1;
    uint32_t num_ends = own ? 1 : 0;
    const size_t most =
        std::min({limits.most, depth - length,
                  static_cast<size_t>(limits.factor * static_cast<double>(length))});
    while (drafts.token_ids.size() < most) {
      const Occurrences found = scan(texts, path);
      if (found.best < 0) break;
      probability *= static_cast<double>(found.followers.at(found.best)) / (found.count - num_ends);
      if (probability < limits.min_token_prob) break;
      drafts.token_ids.push_back(found.best);
      drafts.score += probability;
      path.push_back(found.best);
      num_ends = 0;
    }
    if (drafts.score > best.score) best = drafts;
  }
  return best;
}

TEST(SuffixTree, GoesOnAsTheTextDid) {
  SuffixTree tree(24);
  append_all(tree, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3});
  const SuffixDrafts drafts = tree.after_text({.most = 8, .factor = 1});
  EXPECT_THAT(drafts.token_ids, ElementsAre(4, 5, 6));
  EXPECT_DOUBLE_EQ(drafts.score, 3);
}

TEST(SuffixTree, TakesTheMoreFrequent) {
  SuffixTree tree(8);
  append_all(tree, {1, 5, 1, 6, 1, 5, 1, 5, 1});
  EXPECT_THAT(tree.after_text({.most = 1, .factor = 1}).token_ids, ElementsAre(5));
  // Three of four; with what follows half the time it would be less.
  EXPECT_THAT(tree.after_text({.most = 1, .factor = 1, .min_token_prob = 0.9}).token_ids,
              IsEmpty());
}

TEST(SuffixTree, TextsDoNotRunOnIntoEachOther) {
  SuffixTree tree(8);
  append_all(tree, {1, 2});
  tree.end_text();
  append_all(tree, {3, 4});
  tree.end_text();
  EXPECT_THAT(tree.after(std::vector<int32_t>{1, 2}, kAll).token_ids, IsEmpty());
  EXPECT_THAT(tree.after(std::vector<int32_t>{9, 3}, kAll).token_ids, ElementsAre(4));
  EXPECT_THAT(tree.after_text(kAll).token_ids, IsEmpty());
}

TEST(SuffixTree, TextWithoutRepeatsTakesANodeForEachToken) {
  SuffixTree once(24);
  for (int32_t id = 0; id < 100'000; ++id) once.append(id);
  EXPECT_LT(once.bytes(), 100'000 * 80);
  EXPECT_EQ(once.num_tokens(), 100'000u);
}

TEST(SuffixTree, FindsWhatAScanFinds) {
  std::mt19937 random(5);
  const auto draw = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 100; ++trial) {
    const auto depth = static_cast<size_t>(draw(2, 9));
    const int vocab_size = draw(1, 5);
    SuffixTree tree(depth);
    Texts texts(1);
    for (int i = 0; i < 60; ++i) {
      if (draw(0, 19) == 0) {
        tree.end_text();
        texts.emplace_back();
      }
      texts.back().push_back(draw(0, vocab_size - 1));
      tree.append(texts.back().back());
      const SuffixLimits limits = {.most = static_cast<size_t>(draw(1, 8)),
                                   .factor = 0.5 * draw(1, 6),
                                   .min_token_prob = 0.1 * draw(0, 5) + 0.01};
      const SuffixDrafts drafts = tree.after_text(limits);
      const SuffixDrafts expected = scan_after(texts, texts.back(), true, depth, limits);
      ASSERT_EQ(drafts.token_ids, expected.token_ids) << trial << ' ' << i;
      ASSERT_NEAR(drafts.score, expected.score, 1e-9);
      std::vector<int32_t> other(static_cast<size_t>(draw(1, 6)));
      for (int32_t& id : other) id = draw(0, vocab_size);
      const SuffixDrafts behind = tree.after(other, limits);
      const SuffixDrafts expected_behind = scan_after(texts, other, false, depth, limits);
      ASSERT_EQ(behind.token_ids, expected_behind.token_ids) << trial << ' ' << i;
      ASSERT_NEAR(behind.score, expected_behind.score, 1e-9);
    }
  }
}

}  // namespace
}  // namespace quire::speculative_internal
