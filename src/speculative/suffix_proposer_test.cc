#include "speculative/suffix_proposer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "request/request.h"

namespace quire {
namespace {

Request request_of(int32_t first_token, size_t num_tokens) {
  Request request;
  request.prompt_token_ids.resize(num_tokens);
  std::iota(request.prompt_token_ids.begin(), request.prompt_token_ids.end(), first_token);
  return request;
}

TEST(SuffixProposer, TreesOfAllSequencesHaveABoundTogether) {
  constexpr size_t kMost = 100'000;
  SpeculativeConfig config;
  config.method = "suffix";
  SuffixProposer bounded(config, {.sequences = kMost});
  SuffixProposer unbounded(config);
  for (SequenceId id = 1; id <= 8; ++id) {
    const Request request = request_of(static_cast<int32_t>(1000 * id), 900);
    bounded.add(id, request);
    unbounded.add(id, request);
    // The last token may have made a tree's tables twice as large.
    EXPECT_LT(bounded.bytes(), 2 * kMost) << id;
  }
  EXPECT_GT(unbounded.bytes(), 2 * kMost);
  // The newest sequence's tree was not the largest: it still knows what followed.
  bounded.append(8, std::vector<int32_t>{8890, 8891});
  EXPECT_EQ(bounded.propose(8, 1), std::vector<int32_t>{8892});
  for (SequenceId id = 1; id <= 8; ++id) bounded.remove(id);
  EXPECT_EQ(bounded.bytes(), 0u);
}

TEST(SuffixProposer, ATreeBeyondItsOwnBoundIsBegunAnew) {
  SpeculativeConfig config;
  config.method = "suffix";
  config.suffix_decoding_max_cached_requests = 0;
  SuffixProposer proposer(config, {.sequence = 20'000});
  proposer.add(1, request_of(10, 2000));
  EXPECT_LT(proposer.bytes(), 40'000u);
  proposer.append(1, std::vector<int32_t>{10, 11});  // long forgotten
  EXPECT_EQ(proposer.propose(1, 1), std::vector<int32_t>{});
}

}  // namespace
}  // namespace quire
