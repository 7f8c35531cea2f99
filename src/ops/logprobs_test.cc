// Log-probabilities beside what is sampled, and of given tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/sampling_test_util.h"

namespace quire::ops {
namespace {

using sampling_test::Logits;
using sampling_test::RandomRow;
using sampling_test::RowMaker;
using sampling_test::sample_one;
using sampling_test::sample_rows;

std::vector<double> reference_logprobs(const Logits& logits) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  std::vector<double> result;
  for (const float logit : logits)
    result.push_back(static_cast<double>(logit) - max - std::log(sum));
  return result;
}

TEST(LogprobsTest, AreThoseOfTheRawLogitsInOrderOfRank) {
  RowMaker maker(4);
  for (int i = 0; i < 300; ++i) {
    RandomRow r;
    maker.fill(r, maker.pick(1, 400));
    const int num_logprobs = maker.pick(0, 20);
    r.row.num_logprobs = num_logprobs;
    const SampledToken token = sample_rows({r.logits}, {r.row})[0];
    SamplingRow without = r.row;
    without.num_logprobs = -1;
    ASSERT_EQ(token.token_id, sample_one(r.logits, without));

    std::vector<int32_t> order(r.logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](int32_t id) { return r.logits[static_cast<size_t>(id)]; });
    const auto expected = reference_logprobs(r.logits);
    ASSERT_GE(token.logprobs.size(), 1u);
    EXPECT_EQ(token.logprobs[0].token_id, token.token_id);
    for (size_t j = 0; j < token.logprobs.size(); ++j) {
      const TokenLogprob& t = token.logprobs[j];
      EXPECT_EQ(order.at(static_cast<size_t>(t.rank) - 1), t.token_id);
      if (j > 0) {
        EXPECT_EQ(static_cast<size_t>(t.rank), j);
      }
      EXPECT_NEAR(t.logprob, expected[static_cast<size_t>(t.token_id)], 2e-6);
    }
    const auto num_finite = static_cast<size_t>(
        std::ranges::count_if(r.logits, [](float logit) { return std::isfinite(logit); }));
    EXPECT_EQ(token.logprobs.size() - 1, std::min(static_cast<size_t>(num_logprobs), num_finite));
  }
}

TEST(LogprobsTest, OfGivenTokensLeaveTheLogitsAlone) {
  ThreadPool pool(2);
  Stream stream(pool);
  Logits logits = {0, 1, 2, 5, 4, 3};
  const Logits before = logits;
  const Tensor tensor(logits.data(), DType::kFloat32, {2, 3});
  std::vector<std::vector<TokenLogprob>> out(2);
  token_logprobs(stream, tensor, std::vector<int32_t>{1, 2}, 2, out);
  EXPECT_EQ(logits, before);
  const auto ids = [](const std::vector<TokenLogprob>& row) {
    std::vector<int32_t> result;
    for (const TokenLogprob& t : row) result.push_back(t.token_id);
    return result;
  };
  EXPECT_EQ(ids(out[0]), (std::vector<int32_t>{1, 2, 1}));
  EXPECT_EQ(ids(out[1]), (std::vector<int32_t>{2, 0, 1}));
  EXPECT_EQ(out[0][0].rank, 2);
  EXPECT_EQ(out[1][0].rank, 3);
  EXPECT_NEAR(out[0][1].logprob, -0.40760596, 1e-6);
}

TEST(LogprobsTest, OfLogitsThatAreNoNumbers) {
  const auto logprobs_of = [](Logits logits, int32_t token_id) {
    ThreadPool pool(1);
    Stream stream(pool);
    std::vector<TokenLogprob> found;
    const auto width = static_cast<int64_t>(logits.size());
    token_logprobs(stream, Tensor(logits.data(), DType::kFloat32, {1, width}),
                   std::span(&token_id, 1), 2, std::span(&found, 1));
    return found;
  };
  const auto infinite = logprobs_of(
      {1, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}, 1);
  ASSERT_EQ(infinite.size(), 3u);
  EXPECT_EQ(infinite[0].logprob, 0.0f);
  EXPECT_EQ(infinite[2].logprob, -std::numeric_limits<float>::infinity());
  const auto none = logprobs_of(
      {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::quiet_NaN()}, 0);
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0].logprob, -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace quire::ops
