#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

namespace quire {
namespace {

constexpr int32_t kEos = 1000;

class SchedulerTest : public ::testing::Test {
 protected:
  static SchedulerConfig config() {
    SchedulerConfig config;
    config.max_num_batched_tokens = 100;
    config.max_num_seqs = 8;
    config.max_model_len = 64;
    config.block_size = 4;
    config.num_blocks = 64;
    config.eos_token_ids = {kEos};
    return config;
  }

  static Request request(int64_t prompt_length, SamplingParams params = {}) {
    Request request;
    request.prompt_token_ids.resize(static_cast<size_t>(prompt_length));
    std::iota(request.prompt_token_ids.begin(), request.prompt_token_ids.end(), 0);
    request.params = std::move(params);
    return request;
  }

  static Sequence sequence_of(SequenceId id, Request request, uint32_t index = 0) {
    return {id, std::make_shared<const Request>(std::move(request)), index};
  }

  static Sequence sequence(SequenceId id, int64_t prompt_length, SamplingParams params = {}) {
    return sequence_of(id, request(prompt_length, std::move(params)));
  }

  // A prompt that shares nothing with any other.
  static Sequence unique_sequence(SequenceId id, int64_t prompt_length,
                                  SamplingParams params = {}) {
    Request unique = request(prompt_length, std::move(params));
    unique.prompt_token_ids[0] = static_cast<int32_t>(2000 + id);
    return sequence_of(id, std::move(unique));
  }

  // What the runner would return if every token were `token_id`.
  static StepOutput output_of(const ScheduledBatch& batch, int32_t token_id = 500) {
    StepOutput output;
    output.step = batch.step;
    for (const ScheduledSequence& chunk : batch.sequences) {
      SequenceOutput& sequence = output.sequences.emplace_back();
      sequence.id = chunk.id;
      if (chunk.samples) sequence.token_ids = {token_id};
    }
    return output;
  }

  static std::vector<SequenceId> ids_of(const ScheduledBatch& batch) {
    std::vector<SequenceId> ids;
    for (const ScheduledSequence& chunk : batch.sequences) ids.push_back(chunk.id);
    return ids;
  }
};

using Ids = std::vector<SequenceId>;

TEST_F(SchedulerTest, APromptRunsAndThenDecodesUntilItsLimit) {
  Scheduler scheduler(config());
  SamplingParams params;
  params.max_tokens = 2;
  const Sequence added = sequence_of(7, request(6, params), 3);
  scheduler.add(added);
  const ScheduledBatch first = scheduler.schedule();
  ASSERT_EQ(first.added.size(), 1u);
  EXPECT_EQ(first.added[0].id, 7u);
  EXPECT_EQ(first.added[0].request, added.request()) << "all point to one object";
  EXPECT_TRUE(first.added[0].output_token_ids.empty());
  EXPECT_EQ(first.added[0].index, 3u);
  ASSERT_EQ(first.sequences.size(), 1u);
  EXPECT_EQ(first.sequences[0].num_computed_tokens, 0);
  EXPECT_EQ(first.sequences[0].num_tokens, 6);
  EXPECT_TRUE(first.sequences[0].samples);
  EXPECT_EQ(first.sequences[0].new_block_ids.size(), 2u);
  EXPECT_EQ(first.num_tokens, 6);

  auto updates = scheduler.process(output_of(first, 500));
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].token_ids, TokenList{500});
  EXPECT_FALSE(updates[0].end);

  const ScheduledBatch second = scheduler.schedule();
  EXPECT_TRUE(second.added.empty());
  ASSERT_EQ(second.sequences.size(), 1u);
  EXPECT_EQ(second.sequences[0].num_computed_tokens, 6);
  EXPECT_EQ(second.sequences[0].num_tokens, 1);
  EXPECT_TRUE(second.sequences[0].new_block_ids.empty());
  updates = scheduler.process(output_of(second, 501));
  ASSERT_TRUE(updates.at(0).end);
  EXPECT_EQ(updates[0].end->reason, FinishReason::kLength);
  EXPECT_FALSE(scheduler.has_unfinished());

  const ScheduledBatch last = scheduler.schedule();
  EXPECT_TRUE(last.empty());
  EXPECT_EQ(last.removed, Ids{7});
  EXPECT_TRUE(scheduler.schedule().removed.empty());
  EXPECT_EQ(scheduler.stats().num_used_blocks, 0);
  EXPECT_EQ(scheduler.stats().num_finished[static_cast<size_t>(FinishReason::kLength)], 1);
  scheduler.check_integrity();
}

TEST_F(SchedulerTest, LongPromptsAreCutByTheBudgetAndDecodesComeFirst) {
  SchedulerConfig small = config();
  small.max_num_batched_tokens = 10;
  Scheduler scheduler(small);
  scheduler.add(unique_sequence(1, 8));
  scheduler.add(unique_sequence(2, 20));
  const ScheduledBatch first = scheduler.schedule();
  EXPECT_EQ(ids_of(first), (Ids{1, 2}));
  EXPECT_EQ(first.sequences[1].num_tokens, 2);
  EXPECT_FALSE(first.sequences[1].samples);
  EXPECT_EQ(first.sequences[1].new_block_ids.size(), 5u);  // for the whole prompt
  const auto updates = scheduler.process(output_of(first));
  EXPECT_EQ(updates.size(), 1u);  // nothing to tell of the unfinished prompt

  const ScheduledBatch second = scheduler.schedule();
  EXPECT_EQ(ids_of(second), (Ids{1, 2}));
  EXPECT_EQ(second.sequences[0].num_tokens, 1);
  EXPECT_EQ(second.sequences[1].num_computed_tokens, 2);
  EXPECT_EQ(second.sequences[1].num_tokens, 9);
  EXPECT_TRUE(second.sequences[1].new_block_ids.empty());
  scheduler.process(output_of(second));

  scheduler.add(unique_sequence(3, 1));
  const ScheduledBatch third = scheduler.schedule();
  EXPECT_EQ(third.num_tokens, 10);
  EXPECT_EQ(ids_of(third), (Ids{1, 2}));
  scheduler.process(output_of(third));
  EXPECT_EQ(ids_of(scheduler.schedule()), (Ids{1, 2, 3}));
}

TEST_F(SchedulerTest, NoMoreRunThanMay) {
  SchedulerConfig small = config();
  small.max_num_seqs = 2;
  Scheduler scheduler(small);
  for (SequenceId id = 0; id < 3; ++id) scheduler.add(unique_sequence(id, 4));
  EXPECT_EQ(ids_of(scheduler.schedule()), (Ids{0, 1}));
  EXPECT_EQ(scheduler.stats().num_running, 2);
  EXPECT_EQ(scheduler.stats().num_waiting, 1);
  scheduler.abort(0);
  EXPECT_EQ(ids_of(scheduler.schedule()), (Ids{1, 2}));
}

TEST_F(SchedulerTest, ATokenInFlightIsScheduledAsAPlaceholder) {
  Scheduler scheduler(config());
  SamplingParams params;
  params.max_tokens = 2;
  scheduler.add(sequence(1, 4, params));
  const ScheduledBatch first = scheduler.schedule();
  const ScheduledBatch second = scheduler.schedule();
  ASSERT_EQ(second.sequences.size(), 1u);
  EXPECT_EQ(second.sequences[0].num_computed_tokens, 4);
  EXPECT_EQ(second.sequences[0].new_block_ids.size(), 1u);
  EXPECT_TRUE(second.sequences[0].samples);
  // A third would be past max_tokens.
  EXPECT_TRUE(scheduler.schedule().empty());
  EXPECT_FALSE(scheduler.process(output_of(first, 500)).at(0).end);
  EXPECT_TRUE(scheduler.process(output_of(second, 501)).at(0).end);
}

TEST_F(SchedulerTest, OvershootBehindAStopIsDropped) {
  Scheduler scheduler(config());
  scheduler.add(sequence(1, 4));
  const ScheduledBatch first = scheduler.schedule();
  const ScheduledBatch second = scheduler.schedule();
  const auto updates = scheduler.process(output_of(first, kEos));
  ASSERT_TRUE(updates.at(0).end);
  EXPECT_EQ(updates[0].end->reason, FinishReason::kStop);
  EXPECT_EQ(scheduler.stats().num_used_blocks, 0);
  EXPECT_EQ(scheduler.stats().num_in_flight, 1);
  EXPECT_TRUE(scheduler.process(output_of(second)).empty());
  scheduler.check_integrity();
}

TEST_F(SchedulerTest, FinishingFromOutsideFreesAtOnceAndIsDoneOnce) {
  Scheduler scheduler(config());
  scheduler.add(unique_sequence(1, 4));
  scheduler.add(unique_sequence(2, 4));
  const ScheduledBatch batch = scheduler.schedule();
  scheduler.add(unique_sequence(3, 4));
  scheduler.finish(1, FinishReason::kStop);
  scheduler.abort(2);
  scheduler.abort(3);  // the runner never heard of it
  scheduler.abort(3);
  scheduler.abort(77);
  EXPECT_FALSE(scheduler.has_unfinished());
  EXPECT_EQ(scheduler.stats().num_used_blocks, 0);
  EXPECT_TRUE(scheduler.process(output_of(batch)).empty());
  EXPECT_EQ(scheduler.schedule().removed, (Ids{1, 2}));
  EXPECT_EQ(scheduler.stats().num_finished[static_cast<size_t>(FinishReason::kStop)], 1);
  EXPECT_EQ(scheduler.stats().num_finished[static_cast<size_t>(FinishReason::kAbort)], 2);
}

TEST_F(SchedulerTest, TheLastThatArrivedIsPreemptedAndComesBackFirst) {
  SchedulerConfig small = config();
  small.max_model_len = 16;
  small.num_blocks = 4;
  small.enable_prefix_caching = false;
  Scheduler scheduler(small);
  scheduler.add(unique_sequence(1, 8));
  scheduler.add(unique_sequence(2, 8));
  scheduler.add(unique_sequence(3, 4));
  const ScheduledBatch first = scheduler.schedule();
  EXPECT_EQ(ids_of(first), (Ids{1, 2}));
  const ScheduledBatch second = scheduler.schedule();  // 1 needs a third block
  EXPECT_EQ(ids_of(second), Ids{1});
  EXPECT_EQ(second.removed, Ids{2});
  EXPECT_EQ(scheduler.stats().num_preemptions, 1);
  EXPECT_EQ(scheduler.num_preemptions(2), 1);
  EXPECT_EQ(scheduler.num_preemptions(1), 0);
  EXPECT_EQ(scheduler.num_preemptions(77), 0);
  scheduler.check_integrity();
  // Nor may 3 overtake, though it would fit.
  const ScheduledBatch third = scheduler.schedule();
  EXPECT_EQ(ids_of(third), Ids{1});

  // What the preempted one had in flight still counts.
  const auto updates = scheduler.process(output_of(first, 500));
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_EQ(updates[0].num_preemptions, 0);
  EXPECT_EQ(updates[1].id, 2u);
  EXPECT_EQ(updates[1].token_ids, TokenList{500});
  EXPECT_EQ(updates[1].num_preemptions, 1);
  scheduler.abort(1);
  const ScheduledBatch fourth = scheduler.schedule();
  EXPECT_EQ(ids_of(fourth), (Ids{2, 3}));
  EXPECT_EQ(fourth.removed, Ids{1});
  ASSERT_EQ(fourth.added.size(), 2u);
  EXPECT_EQ(fourth.added[0].output_token_ids, std::vector<int32_t>{500});
  EXPECT_EQ(fourth.added[0].request->num_prompt_tokens(), 8);
  EXPECT_EQ(fourth.sequences[0].num_computed_tokens, 0);
  EXPECT_EQ(fourth.sequences[0].num_tokens, 9);
  EXPECT_TRUE(scheduler.process(output_of(second)).empty());
}

TEST_F(SchedulerTest, APreemptedSequenceWaitsForItsTokensInFlight) {
  SchedulerConfig small = config();
  small.max_model_len = 12;
  small.num_blocks = 4;
  Scheduler scheduler(small);
  scheduler.add(unique_sequence(1, 8));
  scheduler.add(unique_sequence(2, 8));
  const ScheduledBatch first = scheduler.schedule();
  scheduler.schedule();  // preempts 2
  scheduler.abort(1);
  EXPECT_TRUE(scheduler.schedule().empty());
  EXPECT_EQ(scheduler.process(output_of(first, kEos)).size(), 1u);  // the end of 2, by then known
  EXPECT_FALSE(scheduler.has_unfinished());
  scheduler.check_integrity();
}

TEST_F(SchedulerTest, PrefixesAreSharedEvenWithinAStep) {
  Scheduler scheduler(config());
  scheduler.add(sequence(1, 12));
  scheduler.add(sequence(2, 12));
  const ScheduledBatch batch = scheduler.schedule();
  ASSERT_EQ(batch.sequences.size(), 2u);
  // The last token is computed even where its block is cached, for its logits.
  EXPECT_EQ(batch.sequences[1].num_computed_tokens, 8);
  EXPECT_EQ(batch.sequences[1].num_tokens, 4);
  const auto& a = batch.sequences[0].new_block_ids;
  const auto& b = batch.sequences[1].new_block_ids;
  EXPECT_EQ(std::vector(a.begin(), a.begin() + 2), std::vector(b.begin(), b.begin() + 2));
  EXPECT_NE(a[2], b[2]);
  EXPECT_EQ(scheduler.process(output_of(batch)).at(1).num_cached_tokens, 8);
  EXPECT_EQ(scheduler.stats().prefix_cache_queried_tokens, 24);
  EXPECT_EQ(scheduler.stats().prefix_cache_hit_tokens, 8);
  EXPECT_EQ(scheduler.stats().num_used_blocks, 4);
  scheduler.check_integrity();
}

TEST_F(SchedulerTest, FreedBlocksAreHitUntilTheyAreTaken) {
  SchedulerConfig small = config();
  small.max_model_len = 20;
  small.num_blocks = 5;
  Scheduler scheduler(small);
  scheduler.add(sequence(1, 13));
  scheduler.process(output_of(scheduler.schedule(), kEos));
  EXPECT_EQ(scheduler.stats().num_used_blocks, 0);
  scheduler.add(sequence(2, 13));
  ScheduledBatch batch = scheduler.schedule();
  EXPECT_EQ(batch.sequences.at(0).num_computed_tokens, 12);
  scheduler.process(output_of(batch, kEos));

  // Three blocks: two that never had contents, then the end of the prefix.
  scheduler.add(unique_sequence(3, 12));
  scheduler.process(output_of(scheduler.schedule(), kEos));
  scheduler.add(sequence(4, 13));
  batch = scheduler.schedule();
  EXPECT_EQ(batch.sequences.at(0).num_computed_tokens, 8);
  scheduler.check_integrity();
}

TEST_F(SchedulerTest, GeneratedTokensAreCachedOnceKnown) {
  Scheduler scheduler(config());
  scheduler.add(sequence(1, 3));
  const ScheduledBatch first = scheduler.schedule();
  const ScheduledBatch second = scheduler.schedule();  // fills the block with an unknown token
  Request next = request(6);
  next.prompt_token_ids[3] = 500;
  scheduler.add(sequence_of(2, next));
  const ScheduledBatch third = scheduler.schedule();
  EXPECT_EQ(third.sequences.at(1).num_computed_tokens, 0);
  scheduler.process(output_of(first, 500));
  scheduler.add(sequence_of(3, next));
  EXPECT_EQ(scheduler.schedule().sequences.at(2).num_computed_tokens, 4);
  scheduler.check_integrity();
}

// The next turn of a chat begins with all of this one, the last block of the answer included.
TEST_F(SchedulerTest, TheBlocksOfAnAnswerServeTheNextTurn) {
  Scheduler scheduler(config());
  SamplingParams params;
  params.max_tokens = 3;
  scheduler.add(sequence(1, 6, params));
  const ScheduledBatch first = scheduler.schedule();
  const ScheduledBatch second = scheduler.schedule();
  scheduler.process(output_of(first, 500));
  const ScheduledBatch third = scheduler.schedule();  // fills a block with a token not yet known
  scheduler.process(output_of(second, 500));
  scheduler.process(output_of(third, 500));
  EXPECT_FALSE(scheduler.has_unfinished());
  Request next = request(12);
  for (size_t i = 6; i < 9; ++i) next.prompt_token_ids[i] = 500;
  scheduler.add(sequence_of(2, next));
  EXPECT_EQ(scheduler.schedule().sequences.at(0).num_computed_tokens, 8);
}

TEST_F(SchedulerTest, SaltAndPromptLogprobsAndTheSettingKeepFromTheCache) {
  Scheduler scheduler(config());
  scheduler.add(sequence(1, 12));
  Request salted = request(12);
  salted.cache_salt = "other";
  scheduler.add(sequence_of(2, salted));
  SamplingParams params;
  params.prompt_logprobs = 0;
  scheduler.add(sequence(3, 12, params));
  for (const ScheduledSequence& chunk : scheduler.schedule().sequences) {
    EXPECT_EQ(chunk.num_computed_tokens, 0) << chunk.id;
  }
  EXPECT_EQ(scheduler.stats().prefix_cache_queried_tokens, 24);

  SchedulerConfig off = config();
  off.enable_prefix_caching = false;
  Scheduler without(off);
  without.add(sequence(1, 12));
  without.add(sequence(2, 12));
  EXPECT_EQ(without.schedule().sequences.at(1).num_computed_tokens, 0);
  without.check_integrity();
}

TEST_F(SchedulerTest, PromptLogprobsAreDeliveredOnceThoughComputedAgain) {
  SchedulerConfig small = config();
  small.max_model_len = 16;
  small.num_blocks = 4;
  small.max_num_batched_tokens = 12;
  Scheduler scheduler(small);
  SamplingParams params;
  params.prompt_logprobs = 0;
  scheduler.add(unique_sequence(1, 8));
  scheduler.add(unique_sequence(2, 8, params));
  const auto with_logprobs = [](const ScheduledBatch& batch) {
    StepOutput output = output_of(batch);
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
      const ScheduledSequence& chunk = batch.sequences[i];
      if (chunk.id != 2) continue;
      const int64_t end = std::min<int64_t>(chunk.num_computed_tokens + chunk.num_tokens, 7);
      for (int64_t t = chunk.num_computed_tokens; t < end; ++t) {
        output.sequences[i].prompt_logprobs.push_back({{static_cast<int32_t>(t + 1)}, {}, {}});
      }
    }
    return output;
  };
  const ScheduledBatch first = scheduler.schedule();  // four tokens of 2
  EXPECT_EQ(first.sequences.at(1).num_tokens, 4);
  EXPECT_EQ(scheduler.schedule().removed, Ids{2});
  EXPECT_EQ(scheduler.process(with_logprobs(first)).at(1).prompt_logprobs.size(), 4u);
  scheduler.abort(1);
  const ScheduledBatch again = scheduler.schedule();
  EXPECT_EQ(again.sequences.at(0).num_tokens, 8);
  StepOutput dropped;
  dropped.step = again.step - 1;
  dropped.sequences.emplace_back().id = 1;
  dropped.sequences[0].token_ids = {5};
  scheduler.process(dropped);
  const auto updates = scheduler.process(with_logprobs(again));
  ASSERT_EQ(updates.at(0).prompt_logprobs.size(), 3u);
  EXPECT_EQ(updates[0].prompt_logprobs[0].token_ids, std::vector<int32_t>{5});
}

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

TEST_F(SchedulerTest, MisuseAborts) {
  Scheduler scheduler(config());
  EXPECT_DEATH(scheduler.add(sequence(1, 64)), "room for a token");
  scheduler.add(sequence(1, 4));
  EXPECT_DEATH(scheduler.add(sequence(1, 4)), "id of a sequence is new");
  const ScheduledBatch batch = scheduler.schedule();
  StepOutput output = output_of(batch);
  output.step = 5;
  EXPECT_DEATH(scheduler.process(output), "order of steps");
  output = output_of(batch);
  output.sequences[0].token_ids = {};
  EXPECT_DEATH(scheduler.process(output), "samples has a token");
  output.sequences[0].token_ids = {1, 2};
  EXPECT_DEATH(scheduler.process(output), "one more for each of its drafts");
  SchedulerConfig small = config();
  small.num_blocks = 15;
  EXPECT_DEATH(Scheduler{small}, "fits the cache");
}

}  // namespace
}  // namespace quire
