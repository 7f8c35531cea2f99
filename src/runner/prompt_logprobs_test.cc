#include "runner/prompt_logprobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using testing::ElementsAre;

NewSequence new_sequence(SequenceId id, std::vector<int32_t> prompt,
                         std::optional<int> prompt_logprobs) {
  Request request;
  request.prompt_token_ids = std::move(prompt);
  request.params.prompt_logprobs = prompt_logprobs;
  NewSequence sequence;
  sequence.id = id;
  sequence.request = std::make_shared<const Request>(std::move(request));
  return sequence;
}

TEST(PromptRows, PredictThePromptFromItsSecondToken) {
  SequenceTable table({});
  ScheduledBatch batch;
  batch.added = {new_sequence(1, {10, 11, 12}, std::nullopt), new_sequence(2, {20, 21, 22, 23}, 5),
                 new_sequence(3, {30, 31, 32, 33, 34, 35}, 0)};
  batch.sequences = {{.id = 1, .num_tokens = 3, .samples = true, .new_block_ids = {0}},
                     {.id = 2, .num_tokens = 4, .samples = true, .new_block_ids = {1}},
                     {.id = 3, .num_tokens = 3, .samples = false, .new_block_ids = {2}}};
  const std::vector<StepSequence> sequences = table.apply(batch);
  const std::vector<PromptRows> rows = prompt_rows(sequences, 2);
  ASSERT_EQ(rows.size(), 4u);
  // The last row of sequence 2 predicts no token of its prompt; that of sequence 3 one that is
  // still to be computed.
  EXPECT_EQ(rows[0].sequence, 1u);
  EXPECT_EQ(rows[0].first_row, 3);
  EXPECT_THAT(rows[0].targets, ElementsAre(21, 22));
  EXPECT_EQ(rows[0].num_top, 5);
  EXPECT_EQ(rows[1].sequence, 1u);
  EXPECT_EQ(rows[1].first_row, 5);
  EXPECT_THAT(rows[1].targets, ElementsAre(23));
  EXPECT_EQ(rows[2].sequence, 2u);
  EXPECT_EQ(rows[2].first_row, 7);
  EXPECT_THAT(rows[2].targets, ElementsAre(31, 32));
  EXPECT_EQ(rows[2].num_top, 0);
  EXPECT_EQ(rows[3].first_row, 9);
  EXPECT_THAT(rows[3].targets, ElementsAre(33));
}

TEST(PromptRows, AreThoseOfTheChunk) {
  SequenceTable table({});
  ScheduledBatch first;
  first.added = {new_sequence(1, {10, 11, 12, 13, 14}, 1)};
  first.sequences = {{.id = 1, .num_tokens = 2, .samples = false, .new_block_ids = {0}}};
  table.apply(first);
  ScheduledBatch second;
  second.sequences = {
      {.id = 1, .num_computed_tokens = 2, .num_tokens = 3, .samples = true, .new_block_ids = {}}};
  const std::vector<StepSequence> sequences = table.apply(second);
  const std::vector<PromptRows> rows = prompt_rows(sequences, 64);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].first_row, 0);
  EXPECT_THAT(rows[0].targets, ElementsAre(13, 14));

  sequences[0].state.output_token_ids.push_back(99);
  ScheduledBatch decode;
  decode.sequences = {{.id = 1,
                       .kind = ChunkKind::kDecode,
                       .num_computed_tokens = 5,
                       .num_tokens = 1,
                       .samples = true,
                       .new_block_ids = {}}};
  EXPECT_TRUE(prompt_rows(table.apply(decode), 64).empty());
}

}  // namespace
}  // namespace quire
