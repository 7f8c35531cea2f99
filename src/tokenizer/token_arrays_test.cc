#include "tokenizer/token_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "quire/error.h"
#include "tokenizer/golden_test_util.h"
#include "tokenizer/tokenizer_texts.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// The arrays that a converter makes of a tokenizer.json, and the texts that they point to.
struct ConvertedTokenizer {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  TokenArrays arrays;

  explicit ConvertedTokenizer(const json& file) {
    const auto set = [&](size_t id, const std::string& text, TokenKind kind) {
      if (id >= tokens.size()) {
        tokens.resize(id + 1);
        arrays.kinds.resize(id + 1, static_cast<int32_t>(TokenKind::kUnused));
      }
      tokens[id] = text;
      arrays.kinds[id] = static_cast<int32_t>(kind);
    };
    for (const auto& [text, id] : file["model"]["vocab"].items()) {
      const bool is_byte = text.size() == 6 && text.starts_with("<0x");
      set(id.get<size_t>(), text, is_byte ? TokenKind::kByte : TokenKind::kNormal);
    }
    for (const json& added : file["added_tokens"]) {
      set(added["id"].get<size_t>(), added["content"].get<std::string>(),
          added["special"] ? TokenKind::kControl : TokenKind::kUserDefined);
    }
    for (const json& merge : file["model"]["merges"]) {
      merges.push_back(merge.is_string()
                           ? merge.get<std::string>()
                           : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    arrays.tokens.assign(tokens.begin(), tokens.end());
    arrays.merges.assign(merges.begin(), merges.end());
    for (size_t id = 0; id < tokens.size(); ++id) {
      arrays.scores.push_back(-static_cast<float>(id));
    }
  }
};

struct GoldenArrays {
  const char* folder;
  const char* kind;
  const char* pattern;
  int bos_id;  // -1: none
};

class TokenArraysGolden : public testing::TestWithParam<GoldenArrays> {};

// What Hugging Face's library says of the tokenizer.json that the arrays were made of.
TEST_P(TokenArraysGolden, EncodesAndDecodesAsTheTokenizerJson) {
  const auto& [name, kind, pattern, bos_id] = GetParam();
  const fs::path folder = fs::path(QUIRE_SOURCE_DIR) / "tests/golden/tokenizer" / name;
  ConvertedTokenizer converted(json::parse(read_maybe_packed(folder / "tokenizer.json")));
  converted.arrays.kind = kind;
  converted.arrays.pattern = pattern;
  if (bos_id >= 0) converted.arrays.bos_id = bos_id;
  const Tokenizer tokenizer = make_tokenizer(converted.arrays);
  const TokenizerTexts texts = tokenizer_texts(converted.arrays);
  const Tokenizer from_texts =
      Tokenizer::from_json(texts.tokenizer_json, texts.tokenizer_config_json);
  ASSERT_EQ(from_texts.bos_token(), tokenizer.bos_token());
  const json golden = json::parse(read_maybe_packed(folder / "cases.json"));
  ASSERT_GT(golden["cases"].size(), 1000u);
  for (const auto& c : golden["cases"]) {
    const auto text = c[0].get<std::string>();
    SCOPED_TRACE(testing::PrintToString(text));
    const auto ids = c[1].get<std::vector<int32_t>>();
    ASSERT_EQ(tokenizer.encode(text), ids);
    ASSERT_EQ(from_texts.encode(text), ids);
    ASSERT_EQ(from_texts.decode(ids, true), tokenizer.decode(ids, true));
    ASSERT_EQ(tokenizer.decode(ids), c.size() > 2 ? c[2].get<std::string>() : text);
    ASSERT_EQ(tokenizer.decode(ids, true), c.size() > 2 ? c[3].get<std::string>() : text);
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, TokenArraysGolden,
                         testing::Values(GoldenArrays{"qwen3", "gpt2", "qwen2", -1},
                                         GoldenArrays{"llama3.2", "gpt2", "llama-bpe", 128000},
                                         GoldenArrays{"llama2-style", "llama", "", 1}),
                         [](const auto& info) {
                           std::string name = info.param.folder;
                           std::erase_if(name, [](unsigned char c) { return !std::isalnum(c); });
                           return name;
                         });

// A small tokenizer of each kind.
TokenArrays small_gpt2() {
  TokenArrays arrays;
  arrays.kind = "gpt2";
  arrays.pattern = "gpt-2";
  arrays.tokens = {"a", "b", "ab", "<end>", "<think>", "[PAD]"};
  arrays.kinds = {1, 1, 1, 3, 4, 5};
  arrays.merges = {"a b"};
  return arrays;
}

TokenArrays small_llama() {
  TokenArrays arrays;
  arrays.kind = "llama";
  arrays.tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "\u2581ab", "<0x63>"};
  arrays.kinds = {2, 3, 3, 1, 1, 1, 1, 1, 6};
  arrays.scores = {0, 0, 0, -3, -4, -5, -1, -2, 0};
  arrays.bos_id = 1;
  arrays.eos_id = 2;
  return arrays;
}

std::string arrays_error(const TokenArrays& arrays) {
  try {
    make_tokenizer(arrays);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(TokenArraysTest, KindsSayWhatTokensAre) {
  const Tokenizer tokenizer = make_tokenizer(small_gpt2());
  EXPECT_THAT(tokenizer.encode("aab<end>b<think>"), ElementsAre(0, 2, 3, 1, 4));
  EXPECT_TRUE(tokenizer.is_special(3));
  EXPECT_FALSE(tokenizer.is_special(4));
  EXPECT_EQ(tokenizer.id_to_token(5), std::nullopt);
  EXPECT_EQ(tokenizer.vocab_size(), 5);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{2, 3, 4}, true), "ab<think>");
}

TEST(TokenArraysTest, FlagsSayWhatGoesAroundAText) {
  TokenArrays arrays = small_gpt2();
  arrays.bos_id = 3;
  arrays.eos_id = 4;
  EXPECT_THAT(make_tokenizer(arrays).encode("a"), ElementsAre(0));
  EXPECT_EQ(make_tokenizer(arrays).bos_token(), "<end>");
  EXPECT_EQ(make_tokenizer(arrays).eos_token_id(), 4);
  arrays.pattern = "llama-bpe";
  EXPECT_THAT(make_tokenizer(arrays).encode("a"), ElementsAre(3, 0));
  arrays.add_bos = false;
  arrays.add_eos = true;
  EXPECT_THAT(make_tokenizer(arrays).encode("a"), ElementsAre(0, 4));
  arrays.kinds.clear();
  EXPECT_TRUE(make_tokenizer(arrays).is_special(4));
  EXPECT_FALSE(make_tokenizer(arrays).is_special(2));
}

TEST(TokenArraysTest, ScoresDecideWhatMerges) {
  const Tokenizer tokenizer = make_tokenizer(small_llama());
  EXPECT_THAT(tokenizer.encode("ab"), ElementsAre(1, 7));
  EXPECT_THAT(tokenizer.encode("ab ab"), ElementsAre(1, 7, 7));
  EXPECT_THAT(tokenizer.encode("aabc"), ElementsAre(1, 3, 4, 6, 8));
  EXPECT_THAT(tokenizer.encode("ad"), ElementsAre(1, 3, 4, 0));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{7, 7, 8}), "ab abc");

  TokenArrays arrays = small_llama();
  arrays.add_space_prefix = false;
  arrays.add_bos = false;
  EXPECT_THAT(make_tokenizer(arrays).encode("ab ab"), ElementsAre(6, 7));
  EXPECT_EQ(make_tokenizer(arrays).decode(std::vector<int32_t>{7, 6}), " abab");
}

TEST(TokenArraysTest, ControlTokensMayTakeSpacesAlong) {
  TokenArrays arrays = small_gpt2();
  arrays.strips_after_control = true;
  EXPECT_THAT(make_tokenizer(arrays).encode("a<end> \nb"), ElementsAre(0, 3, 1));
}

TEST(TokenArraysTest, EveryPatternCanBeUsed) {
  for (const char* pattern : {"", "default", "gpt-2", "smollm", "qwen2", "deepseek-r1-qwen", "dbrx",
                              "tekken", "gpt-4o"}) {
    TokenArrays arrays = small_gpt2();
    arrays.pattern = pattern;
    EXPECT_THAT(make_tokenizer(arrays).encode("ab"), ElementsAre(2)) << pattern;
  }
}

TEST(TokenArraysTest, RefusesArraysThatDoNotFit) {
  TokenArrays arrays = small_gpt2();
  arrays.pattern = "bloom";
  EXPECT_THAT(arrays_error(arrays),
              HasSubstr("is \"bloom\", which quire does not know; it knows default"));
  arrays = small_gpt2();
  arrays.kind = "bert";
  EXPECT_THAT(arrays_error(arrays), HasSubstr("kind \"bert\"; supported are gpt2 and llama"));
  arrays = small_gpt2();
  arrays.kinds.pop_back();
  EXPECT_THAT(arrays_error(arrays), HasSubstr("there are 5 kinds for 6 tokens"));
  arrays = small_gpt2();
  arrays.kinds[1] = 7;
  EXPECT_THAT(arrays_error(arrays), HasSubstr("token 1 is of the kind 7"));
  arrays = small_gpt2();
  arrays.tokens[1] = "a";
  EXPECT_THAT(arrays_error(arrays), HasSubstr("the token \"a\" has two ids: 0 and 1"));
  arrays = small_gpt2();
  arrays.tokens[1] = "\xff";
  EXPECT_THAT(arrays_error(arrays), HasSubstr("token 1 is no valid UTF-8"));
  arrays = small_gpt2();
  arrays.merges = {"ab"};
  EXPECT_THAT(arrays_error(arrays), HasSubstr("merge 0 is \"ab\"; expected two tokens"));
  arrays.merges = {"a b", "a x"};
  EXPECT_THAT(arrays_error(arrays), HasSubstr("merge 1 is \"a x\", but \"x\" is no token"));
  arrays = small_gpt2();
  arrays.eos_id = 6;
  EXPECT_THAT(arrays_error(arrays), HasSubstr("the eos token's id is 6; expected 0 to 5"));
  arrays = small_gpt2();
  arrays.tokens.clear();
  EXPECT_THAT(arrays_error(arrays), HasSubstr("there are 0 tokens"));

  arrays = small_llama();
  arrays.scores.pop_back();
  EXPECT_THAT(arrays_error(arrays), HasSubstr("there are 8 scores for 9 tokens"));
  arrays = small_llama();
  arrays.scores[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(arrays_error(arrays), HasSubstr("the score of token 4 is no number"));
  const std::string long_token(513, 'x');
  arrays = small_llama();
  arrays.tokens[4] = long_token;
  EXPECT_THAT(arrays_error(arrays), HasSubstr("token 4 has 513 bytes; at most 512"));
}

}  // namespace
}  // namespace quire
