#include "speculative/synthetic_acceptance.h"

#include <gtest/gtest.h>

#include "quire/error.h"

namespace quire {
namespace {

SpeculativeConfig with_length(double length, int num_tokens) {
  SpeculativeConfig config;
  config.method = "ngram";
  config.num_speculative_tokens = num_tokens;
  config.synthetic_acceptance_length = length;
  return config;
}

TEST(SyntheticAcceptance, TheRateBringsTheLength) {
  EXPECT_EQ(synthetic_rate(SpeculativeConfig()), std::nullopt);
  for (const int num_tokens : {1, 4, 16}) {
    for (const double length : {1.0, 1.5, 2.0, 3.0, 5.0, 17.0}) {
      if (length > num_tokens + 1) continue;
      const double rate = synthetic_rate(with_length(length, num_tokens)).value();
      double mean = 1;
      double power = 1;
      for (int i = 0; i < num_tokens; ++i) mean += power *= rate;
      EXPECT_NEAR(mean, length, 1e-9) << num_tokens;
    }
  }
}

TEST(SyntheticAcceptance, ThereAreAlwaysDrafts) {
  const auto proposer = make_proposer(with_length(2, 4));
  Request request;
  request.prompt_token_ids = {5, 6};
  proposer->add(1, request);
  EXPECT_EQ(proposer->propose(1, 3), (std::vector<int32_t>{6, 6, 6}));
  proposer->append(1, std::vector<int32_t>{7, 8});
  EXPECT_EQ(proposer->propose(1, 1), (std::vector<int32_t>{8}));
  proposer->remove(1);
}

TEST(SyntheticAcceptance, LengthsThatNoDraftsBringAreRefused) {
  for (const double length : {0.5, 5.5}) {
    try {
      check_speculative_config(with_length(length, 4));
      ADD_FAILURE() << length;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("expected a number from 1 to 5"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace quire
