#include "tokenizer/merge_reader.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace quire::tokenizer_internal {
namespace {

// The bytes a to z, then all pairs of them in this order, or backwards.
Vocabulary letters_and_pairs(bool backwards) {
  Vocabulary vocabulary;
  std::int32_t id = 0;
  for (char c = 'a'; c <= 'z'; ++c) vocabulary.add(std::string(1, c), id++);
  for (int i = 0; i < 26 * 26; ++i) {
    const int pair = backwards ? 26 * 26 - 1 - i : i;
    const std::string text = {static_cast<char>('a' + pair / 26),
                              static_cast<char>('a' + pair % 26)};
    vocabulary.add(text, id++);
  }
  return vocabulary;
}

void fail(const UnknownMerge& merge) {
  throw std::runtime_error(std::string(merge.left).append("+").append(merge.right) + " lacks " +
                           std::string(merge.missing) + " at " + std::to_string(merge.place));
}

TEST(MergeReader, FindsTheTokensOfEachMerge) {
  for (const bool backwards : {false, true}) {
    const Vocabulary vocabulary = letters_and_pairs(backwards);
    MergeTable merges;
    MergeReader reader(vocabulary, merges, fail);
    for (std::uint32_t i = 0; i < 26 * 26; ++i) {
      const std::string left(1, static_cast<char>('a' + i / 26));
      const std::string right(1, static_cast<char>('a' + i % 26));
      EXPECT_EQ(reader.add(left, right, i, 0), left + right);
    }
    reader.add("a", "b", 1000, 0);  // replaces the earlier one
    reader.finish();
    EXPECT_EQ(merges.entries().size(), 26u * 26u);
    for (const MergeTable::Entry& entry : merges.entries()) {
      const std::string joined =
          std::string(vocabulary.text(entry.left)).append(vocabulary.text(entry.right));
      EXPECT_EQ(vocabulary.text(entry.merge.id), joined);
      const int pair = entry.left * 26 + entry.right;
      EXPECT_EQ(entry.merge.rank, static_cast<std::uint32_t>(pair == 1 ? 1000 : pair));
    }
  }
}

TEST(MergeReader, SaysWhichTokenIsNotThere) {
  const Vocabulary vocabulary = letters_and_pairs(false);
  const auto error_of = [&](const std::string& left, const std::string& right) -> std::string {
    MergeTable merges;
    MergeReader reader(vocabulary, merges, fail);
    try {
      for (int i = 0; i < 40; ++i) reader.add("a", "b", 0, 0);
      reader.add(left, right, 1, 77);
      reader.finish();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of("a", "z"), "");
  EXPECT_EQ(error_of("A", "B"), "A+B lacks A at 77");
  EXPECT_EQ(error_of("a", "B"), "a+B lacks B at 77");
  EXPECT_EQ(error_of("ab", "c"), "ab+c lacks abc at 77");
}

TEST(MergeReader, TakesNothingOfNothing) {
  const Vocabulary vocabulary;
  MergeTable merges;
  MergeReader reader(vocabulary, merges, fail);
  reader.finish();
  EXPECT_TRUE(merges.entries().empty());
  reader.add("a", "b", 0, 0);
  EXPECT_THROW(reader.finish(), std::runtime_error);
}

}  // namespace
}  // namespace quire::tokenizer_internal
