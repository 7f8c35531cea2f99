// Verify chunks: what the scheduler makes of drafts, and of the tokens that come back.
#include <gtest/gtest.h>

#include "scheduler/scheduler.h"
#include "scheduler/scheduler_test_util.h"

namespace quire {
namespace {

// Sequence 1 after its prompt of 4 tokens, its newest token known.
class DraftsTest : public SchedulerTest {
 protected:
  static SamplingParams params() {
    SamplingParams params;
    params.max_tokens = 10;
    params.stop_token_ids = {7};
    return params;
  }
  void start(Scheduler& scheduler) {
    scheduler.add(sequence(1, 4, params()));
    scheduler.process(output_of(scheduler.schedule(), 500));
  }
  static StepOutput brings(const ScheduledBatch& batch, TokenList token_ids) {
    StepOutput output = output_of(batch);
    output.sequences.at(0).token_ids = token_ids;
    return output;
  }
};

TEST_F(DraftsTest, AVerifyChunkBringsOneToAllAndOneMore) {
  Scheduler scheduler(config());
  start(scheduler);
  scheduler.propose(1, {1, 2, kDraftOfRunner});
  const ScheduledBatch batch = scheduler.schedule();
  const ScheduledSequence& chunk = batch.sequences.at(0);
  EXPECT_EQ(chunk.kind, ChunkKind::kVerify);
  EXPECT_EQ(chunk.num_computed_tokens, 4);
  EXPECT_EQ(chunk.num_tokens, 4);
  EXPECT_EQ(chunk.num_logits_rows(), 4);
  EXPECT_EQ(chunk.draft_token_ids, (std::vector<int32_t>{1, 2, kDraftOfRunner}));
  EXPECT_EQ(batch.num_tokens, 4);
  const auto updates = scheduler.process(brings(batch, {1, 3}));
  EXPECT_EQ(updates.at(0).token_ids, (TokenList{1, 3}));
  scheduler.check_integrity();
  // The rejected tokens' slots are used again, and drafts once.
  const ScheduledBatch next = scheduler.schedule();
  EXPECT_EQ(next.sequences.at(0).kind, ChunkKind::kDecode);
  EXPECT_EQ(next.sequences[0].num_computed_tokens, 6);
  EXPECT_TRUE(next.sequences[0].new_block_ids.empty());
}

TEST_F(DraftsTest, AStepHasNoMoreThanTheRunnerHasRoomFor) {
  SchedulerConfig limited = config();
  limited.max_drafts = 4;
  Scheduler scheduler(limited);
  start(scheduler);
  scheduler.add(sequence(2, 4, params()));
  scheduler.process(output_of(scheduler.schedule(), 500));
  scheduler.propose(1, {1, 2, 3});
  scheduler.propose(2, {4, 5, 6});
  const ScheduledBatch batch = scheduler.schedule();
  EXPECT_EQ(batch.sequences.at(0).draft_token_ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(batch.sequences.at(1).draft_token_ids, (std::vector<int32_t>{4}));
  EXPECT_EQ(batch.num_tokens, 6);
}

TEST_F(DraftsTest, WhatIsBehindAStopTokenIsDropped) {
  Scheduler scheduler(config());
  start(scheduler);
  scheduler.propose(1, {1, 7, 2});
  const auto updates = scheduler.process(brings(scheduler.schedule(), {1, 7, 2, 9}));
  EXPECT_EQ(updates.at(0).token_ids, (TokenList{1, 7}));
  ASSERT_TRUE(updates[0].end);
  EXPECT_EQ(updates[0].end->stop_token_id, 7);
  EXPECT_FALSE(scheduler.has_unfinished());
  EXPECT_EQ(scheduler.stats().num_used_blocks, 0);
}

TEST_F(DraftsTest, TheNextStepCountsOnTheMostThatMayCome) {
  Scheduler scheduler(config());
  start(scheduler);
  scheduler.propose(1, {1, 2});
  const ScheduledBatch first = scheduler.schedule();
  const ScheduledBatch second = scheduler.schedule();
  EXPECT_EQ(second.sequences.at(0).kind, ChunkKind::kDecode);
  EXPECT_EQ(second.sequences[0].num_computed_tokens, 7);
  EXPECT_EQ(second.sequences[0].new_block_ids.size(), 0u);
  scheduler.process(brings(first, {9}));
  scheduler.check_integrity();
  EXPECT_EQ(scheduler.process(brings(second, {9})).at(0).token_ids, TokenList{9});
  EXPECT_EQ(scheduler.schedule().sequences.at(0).num_computed_tokens, 6);
}

TEST_F(DraftsTest, DraftsStayWithinTheLengthLimitAndTheBudget) {
  SchedulerConfig small = config();
  small.max_num_batched_tokens = 6;
  Scheduler scheduler(small);
  start(scheduler);
  scheduler.add(unique_sequence(2, 4));
  scheduler.process(output_of(scheduler.schedule(), 500));
  // Sequence 2 is to have a token, too.
  scheduler.propose(1, std::vector<int32_t>(kMaxDraftTokens, 1));
  const ScheduledBatch batch = scheduler.schedule();
  EXPECT_EQ(ids_of(batch), (Ids{2, 1})) << "decodes first";
  EXPECT_EQ(batch.sequences[1].num_tokens, 5);
  StepOutput output = output_of(batch);
  output.sequences[1].token_ids = {1, 1, 1, 1, 1};
  scheduler.process(std::move(output));
  scheduler.abort(2);
  // 7 of at most 10 tokens are there: a chunk brings 3 at most.
  scheduler.propose(1, std::vector<int32_t>(kMaxDraftTokens, 1));
  EXPECT_EQ(scheduler.schedule().sequences.at(0).num_tokens, 3);
  EXPECT_TRUE(scheduler.schedule().empty());
}

TEST_F(DraftsTest, NoSequenceIsPreemptedForADraft) {
  SchedulerConfig small = config();
  small.max_model_len = 16;
  small.num_blocks = 4;
  Scheduler scheduler(small);
  start(scheduler);                      // two blocks from its next token on
  scheduler.add(unique_sequence(2, 7));  // two blocks
  scheduler.process(output_of(scheduler.schedule(), 500));
  scheduler.propose(1, {1, 2, 3, 4, 5});
  const ScheduledBatch batch = scheduler.schedule();
  ASSERT_EQ(ids_of(batch), (Ids{2, 1}));
  EXPECT_EQ(batch.sequences[1].num_tokens, 3) << "as far as its block goes";
  EXPECT_EQ(scheduler.stats().num_preemptions, 0);
}

TEST_F(DraftsTest, TheBlockThatASequenceBehindNeedsIsNotForDrafts) {
  SchedulerConfig small = config();
  small.max_model_len = 48;
  small.block_size = 16;
  small.num_blocks = 3;
  Scheduler scheduler(small);
  scheduler.add(unique_sequence(1, 12));
  scheduler.add(unique_sequence(2, 16));  // its next token needs a second block
  scheduler.process(output_of(scheduler.schedule(), 500));
  ASSERT_EQ(scheduler.stats().num_used_blocks, 2);
  scheduler.propose(1, {1, 2, 3, 4, 5, 6, 7, 8});
  const ScheduledBatch batch = scheduler.schedule();
  ASSERT_EQ(ids_of(batch), (Ids{2, 1}));
  EXPECT_EQ(batch.sequences[0].new_block_ids.size(), 1u);
  EXPECT_EQ(batch.sequences[1].num_tokens, 4) << "as far as its block goes";
  EXPECT_EQ(scheduler.stats().num_preemptions, 0);
  scheduler.check_integrity();
}

}  // namespace
}  // namespace quire
