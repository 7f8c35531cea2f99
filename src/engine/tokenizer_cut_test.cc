#include "engine/tokenizer_cut.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/constrained_requests.h"
#include "quire/model_text.h"

namespace quire {
namespace {

struct Vocabulary {
  explicit Vocabulary(const std::string& model) : tokenizer(load_tokenizer(model)) {
    std::vector<std::string> tokens;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      tokens.push_back(tokenizer.token_bytes(id));
    }
    trie = std::make_shared<const grammar::TokenTrie>(std::move(tokens));
  }
  std::optional<int32_t> next(std::string_view before, std::string_view ahead, bool ends) const {
    return next_token(tokenizer, *trie, {before, ahead, ends});
  }
  std::string text_of(std::optional<int32_t> token) const {
    return token ? std::string(trie->bytes(*token)) : "none";
  }

  Tokenizer tokenizer;
  grammar::TokenTriePtr trie;
};

std::string random_text(std::mt19937& random) {
  static const char* const kParts[] = {
      "{\"", "name", "\": ", "\"", "apple", " trees",     ", ",  "\": {", "caf\u00e9", "12",
      "[",   "]}",   "\n",   "  ", "the",   "\U0001F34E", "rem", "ember", "x"};
  std::uniform_int_distribution<size_t> part(0, std::size(kParts) - 1);
  std::string text;
  for (size_t i = 0; i < 10; ++i) text += kParts[part(random)];
  return text;
}

// Whatever is known of a text, a token that is chosen is the one that the whole text has there.
void expect_tokens_of_whole_texts(const Vocabulary& vocabulary) {
  std::mt19937 random(7);
  size_t num_chosen = 0;
  size_t num_held_back = 0;
  for (int round = 0; round < 150; ++round) {
    const std::string text = random_text(random);
    size_t at = 0;
    for (const int32_t token : vocabulary.tokenizer.encode(text, false)) {
      const size_t left = text.size() - at;
      const size_t known = std::uniform_int_distribution<size_t>(1, left)(random);
      const auto chosen = vocabulary.next(std::string_view(text).substr(0, at),
                                          std::string_view(text).substr(at, known), known == left);
      ++(chosen ? num_chosen : num_held_back);
      if (chosen) {
        EXPECT_EQ(*chosen, token) << text << ", byte " << at << ", " << known << " known";
      }
      at += vocabulary.trie->bytes(token).size();
    }
  }
  EXPECT_GT(num_chosen, 500U);
  EXPECT_GT(num_held_back, 50U);
}

TEST(TokenizerCut, IsThatOfTheWholeText) {
  expect_tokens_of_whole_texts(Vocabulary(engine_test::lexicon_config().model));
}

TEST(TokenizerCut, HoldsBackWhatMayGoOn) {
  const Vocabulary vocabulary(engine_test::lexicon_config().model);
  EXPECT_EQ(vocabulary.text_of(vocabulary.next("a", " fruit that", false)), " fruit");
  EXPECT_EQ(vocabulary.text_of(vocabulary.next("a", " fru", false)), "none");
  EXPECT_EQ(vocabulary.text_of(vocabulary.next("a", " fruit", true)), " fruit");
  // The tokenizer would not cut within this word.
  EXPECT_EQ(vocabulary.text_of(vocabulary.next("a fru", "it that", true)), "none");
  // Half a character.
  EXPECT_EQ(vocabulary.text_of(vocabulary.next("", "\xC3", false)), "none");
  EXPECT_EQ(vocabulary.text_of(vocabulary.next("", "", true)), "none");
}

}  // namespace
}  // namespace quire
