#include "runner/batch_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using testing::ElementsAre;

NewSequence new_sequence(SequenceId id, std::vector<int32_t> token_ids,
                         SamplingParams params = {}) {
  NewSequence sequence;
  sequence.id = id;
  Request request;
  request.prompt_token_ids = std::move(token_ids);
  request.params = std::move(params);
  sequence.request = std::make_shared<const Request>(std::move(request));
  return sequence;
}

template <typename T>
std::vector<T> values(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + tensor.num_elements()};
}

// The example of core/forward_batch.h.
TEST(BatchBuilder, PutsDecodesAndPrefillsSideBySide) {
  SequenceTable table({});
  std::vector<int32_t> a(19, 7);
  ScheduledBatch first;
  first.added = {new_sequence(1, a)};
  first.sequences = {{.id = 1, .num_tokens = 19, .samples = true, .new_block_ids = {7, 4}}};
  table.apply(first);
  table.append_token(1, 42);

  ScheduledBatch batch;
  batch.added = {new_sequence(2, {10, 11, 12})};
  batch.sequences = {
      {.id = 1, .num_computed_tokens = 19, .num_tokens = 1, .samples = true, .new_block_ids = {}},
      {.id = 2, .num_computed_tokens = 0, .num_tokens = 3, .samples = true, .new_block_ids = {9}}};
  table.apply(batch);
  BatchBuilder builder(16);
  const ForwardBatch forward = builder.build(batch, table);

  EXPECT_EQ(forward.num_tokens, 4);
  EXPECT_EQ(forward.num_seqs, 2);
  EXPECT_EQ(forward.max_query_len, 3);
  EXPECT_EQ(forward.max_context_len, 20);
  EXPECT_THAT(values<int32_t>(forward.token_ids), ElementsAre(42, 10, 11, 12));
  EXPECT_THAT(values<int32_t>(forward.positions), ElementsAre(19, 0, 1, 2));
  EXPECT_THAT(values<int64_t>(forward.slot_mapping),
              ElementsAre(4 * 16 + 3, 9 * 16, 9 * 16 + 1, 9 * 16 + 2));
  EXPECT_THAT(values<int32_t>(forward.query_start), ElementsAre(0, 1, 4));
  EXPECT_THAT(values<int32_t>(forward.context_lens), ElementsAre(20, 3));
  EXPECT_THAT(values<int32_t>(forward.block_tables), ElementsAre(7, 4, 9, -1));
  EXPECT_THAT(values<int32_t>(forward.logits_rows), ElementsAre(0, 3));
}

TEST(BatchBuilder, WantsNoLogitsOfAnUnfinishedPrompt) {
  SequenceTable table({});
  ScheduledBatch batch;
  batch.added = {new_sequence(1, std::vector<int32_t>(40, 1))};
  batch.sequences = {{.id = 1, .num_tokens = 20, .samples = false, .new_block_ids = {0, 1, 2}}};
  table.apply(batch);
  BatchBuilder builder(16);
  EXPECT_EQ(builder.build(batch, table).logits_rows.num_elements(), 0);
}

TEST(BatchBuilder, WantsLogitsOfEveryTokenThatIsVerified) {
  SequenceTable table({});
  ScheduledBatch prompt;
  prompt.added = {new_sequence(1, {1, 2, 3})};
  prompt.sequences = {{.id = 1, .num_tokens = 3, .samples = true, .new_block_ids = {5}}};
  table.apply(prompt);
  table.append_token(1, 4);
  ScheduledBatch batch;
  // The scheduler counted on more tokens than have come.
  batch.sequences = {{.id = 1,
                      .kind = ChunkKind::kVerify,
                      .num_computed_tokens = 9,
                      .num_tokens = 3,
                      .samples = true,
                      .draft_token_ids = {8, 9},
                      .new_block_ids = {}}};
  table.apply(batch);
  BatchBuilder builder(16);
  const ForwardBatch forward = builder.build(batch, table);
  EXPECT_THAT(values<int32_t>(forward.token_ids), ElementsAre(4, 8, 9));
  EXPECT_THAT(values<int32_t>(forward.positions), ElementsAre(3, 4, 5));
  EXPECT_THAT(values<int32_t>(forward.context_lens), ElementsAre(6));
  EXPECT_THAT(values<int32_t>(forward.logits_rows), ElementsAre(0, 1, 2));
}

TEST(SequenceTable, KeepsDraftsThatWereSampledInTheirPlaces) {
  const auto kept = [](std::vector<int32_t> drafts, std::vector<int32_t> sampled) {
    SequenceTable table({});
    ScheduledBatch batch;
    batch.added = {new_sequence(1, {1})};
    batch.added[0].output_token_ids = {2};
    batch.sequences = {{.id = 1,
                        .kind = ChunkKind::kVerify,
                        .num_computed_tokens = 1,
                        .num_tokens = static_cast<int64_t>(sampled.size()),
                        .samples = true,
                        .draft_token_ids = std::move(drafts),
                        .new_block_ids = {0}}};
    table.apply(batch);
    const size_t count = table.append_sampled(1, sampled);
    EXPECT_EQ(count + 1, table.at(1).output_token_ids.size());
    return table.at(1).output_token_ids;
  };
  EXPECT_THAT(kept({}, {7}), ElementsAre(2, 7));
  EXPECT_THAT(kept({7, 8}, {7, 8, 9}), ElementsAre(2, 7, 8, 9));
  EXPECT_THAT(kept({7, 8}, {7, 3, 9}), ElementsAre(2, 7, 3));
  EXPECT_THAT(kept({7, 8}, {6, 8, 9}), ElementsAre(2, 6));
}

TEST(SequenceTable, ForgetsAndLearnsAgain) {
  SequenceTable table({5});
  ScheduledBatch batch;
  batch.added = {new_sequence(1, {1, 2})};
  batch.sequences = {{.id = 1, .num_tokens = 2, .samples = true, .new_block_ids = {3}}};
  table.apply(batch);
  EXPECT_THAT(table.at(1).block_table, ElementsAre(3));
  ScheduledBatch again;
  again.removed = {1};
  again.added = {new_sequence(1, {1, 2})};
  again.added[0].output_token_ids = {9};
  table.apply(again);
  EXPECT_EQ(table.at(1).request, again.added[0].request);
  EXPECT_THAT(table.at(1).output_token_ids, ElementsAre(9));
  EXPECT_TRUE(table.at(1).block_table.empty());
  EXPECT_EQ(table.size(), 1u);
}

TEST(SequenceTable, MasksStopTokensOnlyWhereMinTokensAsks) {
  SequenceTable table({5});
  SamplingParams params;
  params.min_tokens = 2;
  params.stop_token_ids = {8};
  ScheduledBatch batch;
  batch.added = {new_sequence(1, {1}), new_sequence(2, {1}, params)};
  table.apply(batch);
  EXPECT_TRUE(table.at(1).stop_ids.empty());
  EXPECT_THAT(table.at(2).stop_ids, ElementsAre(8, 5));
}

}  // namespace
}  // namespace quire
