// What all proposers promise (proposer.h).
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "speculative/proposer.h"

namespace quire {
namespace {

class ProposersTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr SequenceId kId = 7;

  // A proposer of the method that has read a prompt of 20 random tokens of so many.
  void begin(int32_t num_token_ids) {
    SpeculativeConfig config;
    config.method = GetParam();
    config.num_speculative_tokens = 4;
    proposer_ = make_proposer(config);
    token_ids_ = std::uniform_int_distribution<int32_t>(0, num_token_ids - 1);
    request_.prompt_token_ids.clear();
    for (int i = 0; i < 20; ++i) request_.prompt_token_ids.push_back(token_ids_(random_));
    proposer_->add(kId, request_);
  }
  void append() { proposer_->append(kId, std::vector<int32_t>{token_ids_(random_)}); }

  std::mt19937 random_{5};
  std::uniform_int_distribution<int32_t> token_ids_;
  Request request_;
  std::unique_ptr<Proposer> proposer_;
};

TEST_P(ProposersTest, SayWhetherTheyHaveDrafts) {
  int num_with = 0;
  int num_without = 0;
  for (const int32_t num_token_ids : {2, 4, 40}) {
    begin(num_token_ids);
    for (int i = 0; i < 100; ++i, append()) {
      const bool has = proposer_->has_drafts(kId);
      ++(has ? num_with : num_without);
      for (size_t most = 1; most <= 4; ++most) {
        ASSERT_EQ(proposer_->propose(kId, most).empty(), !has) << num_token_ids << ' ' << i;
      }
    }
  }
  EXPECT_GT(num_with, 20);
  EXPECT_GT(num_without, 20);
}

INSTANTIATE_TEST_SUITE_P(Methods, ProposersTest, testing::Values("ngram", "suffix"));

}  // namespace
}  // namespace quire
