#include "request/sequence.h"

#include <gtest/gtest.h>

#include <limits>

namespace quire {
namespace {

Sequence make_sequence(SamplingParams params, std::vector<int32_t> prompt = {1, 2, 3}) {
  Request request;
  request.prompt_token_ids = std::move(prompt);
  request.params = std::move(params);
  return Sequence(7, std::make_shared<const Request>(std::move(request)), 0);
}

constexpr int64_t kModelLen = 100;
const std::vector<int32_t> kEos = {50, 51};

TEST(SequenceTest, EndsAtAnyOfTheModelsEndTokens) {
  for (const int32_t eos : kEos) {
    Sequence sequence = make_sequence({});
    EXPECT_FALSE(sequence.append(9, kEos, kModelLen));
    const auto end = sequence.append(eos, kEos, kModelLen);
    ASSERT_TRUE(end);
    EXPECT_EQ(end->reason, FinishReason::kStop);
    EXPECT_FALSE(end->stop_token_id);
    EXPECT_EQ(sequence.output_token_ids(), (std::vector<int32_t>{9, eos}));
    EXPECT_EQ(sequence.num_tokens(), 5);
    EXPECT_EQ(sequence.num_output_tokens(), 2);
  }
}

TEST(SequenceTest, IgnoresEndTokensButNotStopTokensIfAsked) {
  SamplingParams params;
  params.ignore_eos = true;
  params.stop_token_ids = {60};
  Sequence sequence = make_sequence(params);
  EXPECT_FALSE(sequence.append(50, kEos, kModelLen));
  const auto end = sequence.append(60, kEos, kModelLen);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->reason, FinishReason::kStop);
  EXPECT_EQ(end->stop_token_id, 60);
}

TEST(SequenceTest, StopsOnlyOnceMinTokensAreThere) {
  SamplingParams params;
  params.min_tokens = 3;
  params.stop_token_ids = {60};
  Sequence sequence = make_sequence(params);
  EXPECT_FALSE(sequence.append(50, kEos, kModelLen));
  EXPECT_FALSE(sequence.append(60, kEos, kModelLen));
  EXPECT_TRUE(sequence.append(50, kEos, kModelLen));
}

TEST(SequenceTest, EndsAtMaxTokens) {
  SamplingParams params;
  params.max_tokens = 2;
  Sequence sequence = make_sequence(params);
  EXPECT_EQ(sequence.max_num_tokens(kModelLen), 5);
  EXPECT_FALSE(sequence.append(9, kEos, kModelLen));
  EXPECT_EQ(sequence.append(9, kEos, kModelLen)->reason, FinishReason::kLength);
}

TEST(SequenceTest, AStopTokenCountsBeforeTheLengthLimit) {
  SamplingParams params;
  params.max_tokens = 1;
  EXPECT_EQ(make_sequence(params).append(50, kEos, kModelLen)->reason, FinishReason::kStop);
}

TEST(SequenceTest, EndsAtMaxModelLen) {
  for (const auto max_tokens : {std::optional<int64_t>(), std::optional<int64_t>(5),
                                std::optional(std::numeric_limits<int64_t>::max())}) {
    SamplingParams params;
    params.max_tokens = max_tokens;
    Sequence sequence = make_sequence(params);
    EXPECT_EQ(sequence.max_num_tokens(5), 5);
    EXPECT_FALSE(sequence.append(9, kEos, 5));
    EXPECT_EQ(sequence.append(9, kEos, 5)->reason, FinishReason::kLength);
  }
}

}  // namespace
}  // namespace quire
