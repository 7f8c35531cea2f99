#include "engine/answer_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <span>
#include <vector>

#include "engine/answer_compiler.h"
#include "engine/constrained_requests.h"
#include "quire/model_text.h"

namespace quire {
namespace {

constexpr int64_t kVocab = 8192;
constexpr int32_t kEos = 8191;

class AnswerMasksTest : public testing::Test {
 protected:
  AnswerMasksTest() : masks_(kVocab, 256, {kEos}) {
    AnswerCompilerOptions options;
    options.vocab_size = kVocab;
    options.eos_token_ids = {kEos};
    AnswerCompiler compiler(tokenizer_, options);
    request_.prompt_token_ids = {1};
    request_.is_constrained = true;
    masks_.add(request_, compiler.compile(engine_test::regex("[ab]{2,4}")));
    sentence_.prompt_token_ids = {1};
    sentence_.is_constrained = true;
    sentence_.number = 1;
    masks_.add(sentence_,
               compiler.compile(engine_test::regex("(cats|dogs) like to sleep in the sun")));
  }

  int32_t token(const char* text) const { return tokenizer_.encode(text, false).front(); }
  std::unique_ptr<RowMask> at(const std::vector<int32_t>& output) {
    return masks_.at(request_, 0, output, false);
  }
  static size_t count(std::span<const uint32_t> mask) {
    size_t count = 0;
    for (const uint32_t word : mask) count += static_cast<size_t>(std::popcount(word));
    return count;
  }

  Tokenizer tokenizer_ = load_tokenizer(engine_test::lexicon_config().model);
  Request request_;
  Request sentence_;
  AnswerMasks masks_;
};

TEST_F(AnswerMasksTest, NothingIsAllowedBehindWhatTheConstraintForbids) {
  const auto lost = at({token("a"), token("c")});
  ASSERT_NE(lost, nullptr);
  EXPECT_EQ(count(lost->allowed()), 0U);
  EXPECT_EQ(lost->allowed().size(), static_cast<size_t>(kVocab / 32));
  EXPECT_GT(count(at({token("a")})->allowed()), 0U);
}

TEST_F(AnswerMasksTest, WhatFollowsTheEndOfAnAnswerIsNobodys) {
  EXPECT_EQ(at({token("a"), token("b"), kEos}), nullptr);
  masks_.remove(request_.number);
  EXPECT_EQ(at({token("a")}), nullptr);
}

TEST_F(AnswerMasksTest, TextWithoutAChoiceHasTheTokenizersTokens) {
  std::vector<int32_t> output = tokenizer_.encode("dogs", false);
  EXPECT_THAT(masks_.forced_tokens(sentence_, 0, 0, 16), testing::IsEmpty());
  EXPECT_EQ(masks_.progress(sentence_, 0, output).num_tokens, output.size());
  const std::vector<int32_t> forced = masks_.forced_tokens(sentence_, 0, 0, 16);
  EXPECT_EQ(forced, tokenizer_.encode(" like to sleep in the sun", false));
  EXPECT_EQ(masks_.forced_tokens(sentence_, 0, 0, 3),
            std::vector(forced.begin(), forced.begin() + 3));
  for (const int32_t token : forced) {
    // As drafts, and one by one: another sequence's masks follow from its tokens only.
    for (const bool is_draft : {true, false}) {
      const auto row = masks_.at(sentence_, 0, output, is_draft);
      EXPECT_EQ(count(row->allowed()), 1U);
      EXPECT_TRUE(grammar::is_allowed(row->allowed(), token));
      EXPECT_TRUE(row->takes_all());
    }
    output.push_back(token);
  }
  EXPECT_EQ(masks_.at(sentence_, 0, output, false), nullptr);
}

// Some of it is not sampled yet, or was sampled and is not known here yet.
TEST_F(AnswerMasksTest, TextWithoutAChoiceIsKnownBehindAwaitedTokens) {
  std::vector<int32_t> output = tokenizer_.encode("dogs", false);
  EXPECT_THAT(masks_.forced_tokens(sentence_, 0, 1, 16), testing::IsEmpty());
  masks_.progress(sentence_, 0, output);
  const std::vector<int32_t> forced = masks_.forced_tokens(sentence_, 0, 0, 16);
  ASSERT_GT(forced.size(), 4U);
  const std::vector<int32_t> behind(forced.begin() + 2, forced.end());
  EXPECT_EQ(masks_.forced_tokens(sentence_, 0, 2, 16), behind);
  EXPECT_THAT(masks_.forced_tokens(sentence_, 0, forced.size(), 16), testing::IsEmpty());
  EXPECT_TRUE(masks_.at(sentence_, 0, output, false)->take(forced[0]));
  EXPECT_EQ(masks_.forced_tokens(sentence_, 0, 2, 16), behind);
  EXPECT_THAT(masks_.forced_tokens(sentence_, 0, 0, 16), testing::IsEmpty());
}

// Masks behind drafts take no tokens.
TEST_F(AnswerMasksTest, DraftsFollowKeptDrafts) {
  std::vector<int32_t> output = tokenizer_.encode("dogs", false);
  masks_.progress(sentence_, 0, output);
  const std::vector<int32_t> forced = masks_.forced_tokens(sentence_, 0, 0, 3);
  ASSERT_EQ(forced.size(), 3U);
  EXPECT_TRUE(masks_.at(sentence_, 0, output, false)->take(forced[0]));
  output.insert(output.end(), forced.begin(), forced.begin() + 1);
  EXPECT_TRUE(masks_.at(sentence_, 0, output, true)->take(forced[1]));
  masks_.progress(sentence_, 0, std::span(forced).first(2));
  std::vector<int32_t> draft = {forced[2]};
  masks_.cut_draft(sentence_, 0, draft);
  EXPECT_EQ(draft, std::vector{forced[2]});
  EXPECT_EQ(masks_.forced_tokens(sentence_, 0, 0, 1), draft);
}

TEST_F(AnswerMasksTest, WhereTheTokenizerWouldNotCutOtherTokensMayCome) {
  // " like" as " l" and "ike".
  std::vector<int32_t> output = tokenizer_.encode("dogs l", false);
  const auto row = masks_.at(sentence_, 0, output, false);
  masks_.progress(sentence_, 0, output);
  EXPECT_THAT(masks_.forced_tokens(sentence_, 0, 0, 16), testing::IsEmpty());
  EXPECT_GT(count(row->allowed()), 1U);
  output.push_back(token("ike"));
  EXPECT_EQ(count(masks_.at(sentence_, 0, output, false)->allowed()), 1U);
}

TEST_F(AnswerMasksTest, NothingIsForcedBesideCallbacks) {
  Request called = sentence_;
  called.number = 2;
  called.has_logits_processors = true;
  AnswerCompilerOptions options;
  options.vocab_size = kVocab;
  options.eos_token_ids = {kEos};
  AnswerCompiler compiler(tokenizer_, options);
  masks_.add(called, compiler.compile(engine_test::regex("like to sleep")));
  EXPECT_GT(count(masks_.at(called, 0, {}, false)->allowed()), 1U);
  EXPECT_THAT(masks_.forced_tokens(called, 0, 0, 16), testing::IsEmpty());
}

}  // namespace
}  // namespace quire
