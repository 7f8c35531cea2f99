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
  table.apply(first).front().state.output_token_ids.push_back(42);

  ScheduledBatch batch;
  batch.added = {new_sequence(2, {10, 11, 12})};
  batch.sequences = {
      {.id = 1,
       .kind = ChunkKind::kDecode,
       .num_computed_tokens = 19,
       .num_tokens = 1,
       .samples = true,
       .new_block_ids = {}},
      {.id = 2, .num_computed_tokens = 0, .num_tokens = 3, .samples = true, .new_block_ids = {9}}};
  BatchBuilder builder(16);
  const ForwardBatch forward = builder.build(table.apply(batch));

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
  BatchBuilder builder(16);
  EXPECT_EQ(builder.build(table.apply(batch)).logits_rows.num_elements(), 0);
}

TEST(BatchBuilder, WantsLogitsOfEveryTokenThatIsVerified) {
  SequenceTable table({});
  ScheduledBatch prompt;
  prompt.added = {new_sequence(1, {1, 2, 3})};
  prompt.sequences = {{.id = 1, .num_tokens = 3, .samples = true, .new_block_ids = {5}}};
  table.apply(prompt).front().state.output_token_ids.push_back(4);
  ScheduledBatch batch;
  // The scheduler counted on more tokens than have come.
  batch.sequences = {{.id = 1,
                      .kind = ChunkKind::kVerify,
                      .num_computed_tokens = 9,
                      .num_tokens = 3,
                      .samples = true,
                      .draft_token_ids = {8, 9},
                      .new_block_ids = {}}};
  BatchBuilder builder(16);
  const ForwardBatch forward = builder.build(table.apply(batch));
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
    SequenceState& state = table.apply(batch).front().state;
    const size_t count = state.append_sampled(sampled);
    EXPECT_EQ(count + 1, state.output_token_ids.size());
    return state.output_token_ids;
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
  {
    const StepSequence sequence = table.apply(batch).front();
    EXPECT_EQ(sequence.begin, 0);
    EXPECT_EQ(sequence.end(), 2);
    EXPECT_THAT(sequence.state.block_table, ElementsAre(3));
    sequence.state.output_token_ids.push_back(9);
  }
  ScheduledBatch decode;
  decode.sequences = {{.id = 1,
                       .kind = ChunkKind::kDecode,
                       .num_computed_tokens = 2,
                       .num_tokens = 1,
                       .samples = true,
                       .new_block_ids = {6}}};
  {
    const StepSequence sequence = table.apply(decode).front();
    EXPECT_EQ(sequence.begin, 2);
    EXPECT_THAT(sequence.state.block_table, ElementsAre(3, 6));
  }
  ScheduledBatch again;
  again.removed = {1};
  again.added = {new_sequence(1, {1, 2})};
  again.added[0].output_token_ids = {9};
  again.sequences = {{.id = 1, .num_tokens = 3, .samples = true, .new_block_ids = {4}}};
  const StepSequence sequence = table.apply(again).front();
  EXPECT_EQ(sequence.state.request, again.added[0].request);
  EXPECT_THAT(sequence.state.output_token_ids, ElementsAre(9));
  EXPECT_THAT(sequence.state.block_table, ElementsAre(4));
  EXPECT_EQ(table.size(), 1u);
}

TEST(SequenceTable, MasksStopTokensOnlyWhereMinTokensAsks) {
  SequenceTable table({5});
  SamplingParams params;
  params.min_tokens = 2;
  params.stop_token_ids = {8};
  ScheduledBatch batch;
  batch.added = {new_sequence(1, {1}), new_sequence(2, {1}, params)};
  batch.sequences = {{.id = 1, .num_tokens = 1, .samples = true, .new_block_ids = {0}},
                     {.id = 2, .num_tokens = 1, .samples = true, .new_block_ids = {1}}};
  const std::vector<StepSequence> sequences = table.apply(batch);
  EXPECT_TRUE(sequences[0].state.stop_ids.empty());
  EXPECT_THAT(sequences[1].state.stop_ids, ElementsAre(8, 5));
}

TEST(SequenceTable, LearnsWhatAnUnknownTokenIs) {
  EXPECT_EQ(row_of_unknown(unknown_token(0)), 0);
  EXPECT_EQ(row_of_unknown(unknown_token(7)), 7);
  EXPECT_EQ(row_of_unknown(0), -1);
  SequenceTable table({5});
  ScheduledBatch batch;
  batch.added = {new_sequence(1, {1, 2})};
  batch.sequences = {{.id = 1, .num_tokens = 2, .samples = true, .new_block_ids = {3}}};
  SequenceState& state = table.apply(batch).front().state;
  state.output_token_ids.push_back(unknown_token(0));
  table.resolve_token(1, 0, 8);
  table.resolve_token(1, 1, 4);  // it came back without this one
  table.resolve_token(2, 0, 4);  // it is gone
  EXPECT_THAT(state.output_token_ids, ElementsAre(8));
}

// A sequence of prompt {1} and output {2} in a verify chunk with drafts {7, 8}.
ScheduledBatch verify_batch() {
  ScheduledBatch batch;
  batch.added = {new_sequence(1, {1})};
  batch.added[0].output_token_ids = {2};
  batch.sequences = {{.id = 1,
                      .kind = ChunkKind::kVerify,
                      .num_computed_tokens = 1,
                      .num_tokens = 3,
                      .samples = true,
                      .draft_token_ids = {7, 8},
                      .new_block_ids = {0}}};
  return batch;
}

TEST(SequenceTable, TakesWhatAnotherRankSampledBehindDrafts) {
  SequenceTable table({});
  const ScheduledBatch batch = verify_batch();
  SequenceState& state = table.apply(batch).front().state;
  EXPECT_FALSE(state.awaits_token());
  state.output_token_ids.push_back(unknown_token(0));
  EXPECT_TRUE(state.awaits_token());
  const uint64_t serial = state.serial;
  table.take_sampled(1, serial, std::vector<int32_t>{7, 3, 9});
  EXPECT_THAT(state.output_token_ids, ElementsAre(2, 7, 3));
  EXPECT_FALSE(state.awaits_token());
  // It comes back, and what was sampled before is not for it.
  ScheduledBatch again;
  again.removed = {1};
  again.added = {new_sequence(1, {1})};
  table.apply(again);
  EXPECT_NE(table.find(1)->serial, serial);
  table.take_sampled(1, serial, std::vector<int32_t>{7, 3, 9});
  EXPECT_TRUE(table.find(1)->output_token_ids.empty());
  table.take_sampled(2, serial, std::vector<int32_t>{7, 3, 9});
  EXPECT_EQ(table.find(2), nullptr);
}

TEST(SequenceTable, IsToldHowManyDraftsStayed) {
  for (const int64_t num_kept : {0, 1, 2}) {
    SequenceTable table({});
    const ScheduledBatch batch = verify_batch();
    table.apply(batch).front().state.output_token_ids.push_back(unknown_token(0));
    ScheduledBatch next;
    next.sequences = {{.id = 1,
                       .kind = ChunkKind::kDecode,
                       .num_computed_tokens = 2 + num_kept,
                       .num_tokens = 1,
                       .samples = true}};
    table.cut_to_computed(next);
    EXPECT_EQ(table.apply(next).front().begin, 2 + num_kept);
  }
}

}  // namespace
}  // namespace quire
