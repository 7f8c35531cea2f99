#include "engine/answer_start.h"

#include <gtest/gtest.h>

#include <random>

#include "quire/error.h"

namespace quire {
namespace {

// All bytes, then words of the marker's letters.
grammar::TokenTriePtr trie_of_letters(std::mt19937& random, const std::string& letters) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (int i = 0; i < 200; ++i) {
    std::string& word = tokens.emplace_back();
    for (auto length = random() % 6; length > 0; --length)
      word += letters[random() % letters.size()];
  }
  return std::make_shared<grammar::TokenTrie>(std::move(tokens));
}

TEST(AnswerStart, FindsTheFirstMarkerOfRandomTexts) {
  std::mt19937 random(1);
  for (const std::string marker : {"a", "aa", "aab", "abab", "abacab", "</ab>"}) {
    const auto trie = trie_of_letters(random, "ab<>/");
    const AnswerStart start(marker, std::nullopt, trie);
    for (int trial = 0; trial < 500; ++trial) {
      std::string text;
      AnswerStart::Step at;
      for (int i = 0; i < 12 && !at.rest; ++i) {
        const auto token = static_cast<int32_t>(random() % trie->num_tokens());
        size_t num_crossings = 0;
        for (const auto& crossing : start.crossings(at.state))
          num_crossings += crossing.token == token;
        std::string planned = text;
        for (const int32_t id : start.plan(at.state)) planned += trie->bytes(id);
        EXPECT_EQ(planned.find(marker), planned.size() - marker.size());
        at = start.step(at.state, token);
        text += trie->bytes(token);
        EXPECT_EQ(num_crossings == 1, at.rest && !at.rest->empty());
      }
      const size_t found = text.find(marker);
      ASSERT_EQ(at.rest.has_value(), found != std::string::npos) << text;
      if (at.rest) {
        EXPECT_EQ(*at.rest, text.substr(found + marker.size())) << text;
      }
    }
  }
}

TEST(AnswerStart, ASpecialTokenIsTheMarker) {
  const auto trie = std::make_shared<grammar::TokenTrie>(std::vector<std::string>{"a", "b", ""});
  const AnswerStart start("<end>", 2, trie);
  EXPECT_FALSE(start.step(0, 0).rest);
  EXPECT_EQ(start.step(0, 2).rest, "");
  EXPECT_EQ(start.plan(3).front(), 2);
  EXPECT_FALSE(start.step(0, 7).rest) << "an id that is no token";
  EXPECT_THROW(AnswerStart("<end>", std::nullopt, trie), Error);
}

}  // namespace
}  // namespace quire
