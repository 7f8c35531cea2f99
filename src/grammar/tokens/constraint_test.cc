#include "grammar/tokens/constraint.h"

#include <gtest/gtest.h>

namespace quire::grammar {
namespace {

// All bytes, then some words; the last two alike.
TokenTriePtr test_trie() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* word : {"ab", "abc", "bc", "", "x\xC3", "bc"}) tokens.emplace_back(word);
  return std::make_shared<TokenTrie>(std::move(tokens));
}

std::vector<std::string> allowed(Constraint& constraint, const TokenTrie& trie,
                                 size_t tokens_left = Constraint::kAnyNumber) {
  std::vector<uint32_t> mask(mask_words(trie.num_tokens()));
  constraint.allow_tokens(tokens_left, mask);
  std::vector<std::string> texts;
  for (size_t token = 0; token < trie.num_tokens(); ++token) {
    const auto id = static_cast<int32_t>(token);
    if (is_allowed(mask, id)) texts.emplace_back(trie.bytes(id));
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(TokenTrieTest, FindsTheLongestToken) {
  const TokenTriePtr trie = test_trie();
  EXPECT_EQ(trie->bytes(trie->longest("abcd")), "abc");
  EXPECT_EQ(trie->bytes(trie->longest("aab")), "a");
  EXPECT_EQ(trie->longest(""), TokenTrie::kNone);
  EXPECT_EQ(trie->count_longest("abcbcab"), 3U);
  EXPECT_EQ(TokenTrie({"a", ""}).count_longest("ab"), SIZE_MAX);
}

TEST(ConstraintTest, AllowsTheTokensOfAnExpression) {
  const TokenTriePtr trie = test_trie();
  Constraint constraint(make_language(compile_regex("ab+c?")), trie);
  EXPECT_EQ(allowed(constraint, *trie), (Texts{"a", "ab", "abc"}));
  EXPECT_FALSE(constraint.can_end());
  EXPECT_FALSE(constraint.accept('b'));
  EXPECT_TRUE(constraint.accept('a'));
  EXPECT_EQ(allowed(constraint, *trie), (Texts{"b", "bc", "bc"}));
  Constraint other = constraint;
  EXPECT_TRUE(constraint.accept(258));
  EXPECT_TRUE(constraint.can_end());
  EXPECT_TRUE(constraint.must_end());
  EXPECT_EQ(allowed(constraint, *trie), Texts{});
  EXPECT_TRUE(other.allows('b'));
  EXPECT_TRUE(other.accept('b'));
  EXPECT_TRUE(other.can_end());
  EXPECT_FALSE(other.must_end());
}

TEST(ConstraintTest, EndsInTime) {
  const TokenTriePtr trie = test_trie();
  Constraint constraint(make_language(compile_regex("x*abc")), trie);
  EXPECT_EQ(constraint.tokens_to_end(), 1U);
  EXPECT_EQ(allowed(constraint, *trie, 1), Texts{"abc"});
  EXPECT_EQ(allowed(constraint, *trie, 3), (Texts{"a", "ab", "abc"}));
  EXPECT_EQ(allowed(constraint, *trie, 4), (Texts{"a", "x", "ab", "abc"}));
  EXPECT_TRUE(constraint.accept('x'));
  EXPECT_EQ(constraint.tokens_to_end(), 1U);
}

TEST(ConstraintTest, FindsTextThatNeedsNoChoice) {
  Constraint constraint(make_language(compile_regex("say (hello|help) now!")), test_trie());
  EXPECT_EQ(constraint.forced_text().text(), "say hel");
  EXPECT_FALSE(constraint.forced_text().ends());
  EXPECT_TRUE(constraint.accept_bytes("sa"));
  Constraint other = constraint;
  EXPECT_EQ(other.forced_text().text(), "y hel");
  EXPECT_TRUE(constraint.accept_bytes("y hel"));
  EXPECT_EQ(constraint.forced_text().text(), "");
  EXPECT_TRUE(constraint.accept_bytes("p"));
  EXPECT_EQ(constraint.forced_text().text(), " now!");
  EXPECT_TRUE(constraint.forced_text().ends());
  EXPECT_EQ(other.forced_text().text(), "y hel");
}

TEST(ConstraintTest, ForcedTextEndsWhereTheTextMayEnd) {
  Constraint constraint(make_language(compile_regex("ab(cd)?")), test_trie());
  EXPECT_EQ(constraint.forced_text().text(), "ab");
  EXPECT_TRUE(constraint.accept_bytes("abc"));
  EXPECT_EQ(constraint.forced_text().text(), "d");
}

TEST(ConstraintTest, LongForcedTextIsFoundBitByBit) {
  const std::string text(200, 'z');
  Constraint constraint(make_language(compile_regex("z{200}")), test_trie());
  for (size_t taken = 0; taken < text.size(); taken += 40) {
    EXPECT_EQ(constraint.forced_text().text(), text.substr(taken, ForcedText::kMostBytes));
    EXPECT_TRUE(constraint.accept_bytes(text.substr(taken, 40)));
  }
}

}  // namespace
}  // namespace quire::grammar
