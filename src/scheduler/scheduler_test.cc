#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include "scheduler/scheduler_test_util.h"

namespace quire {
namespace {

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
