// How the scheduler divides sequences between the stages of a pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "scheduler/scheduler.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SchedulerStagesTest : public ::testing::Test {
 protected:
  static SchedulerConfig config(int num_stages) {
    SchedulerConfig config;
    config.max_num_batched_tokens = 1000;
    config.max_num_seqs = 64;
    config.max_model_len = 640;
    config.block_size = 16;
    config.num_blocks = 2000;
    config.enable_prefix_caching = false;
    config.num_stages = num_stages;
    config.least_stage_chunk = 16;
    return config;
  }

  static void add(Scheduler& scheduler, SequenceId id, int64_t prompt_length) {
    Request request;
    request.prompt_token_ids.assign(static_cast<size_t>(prompt_length), 7);
    scheduler.add(Sequence(id, std::make_shared<const Request>(std::move(request)), 0));
  }

  // Schedules a step that is then in flight.
  std::vector<SequenceId> schedule(Scheduler& scheduler) {
    const ScheduledBatch batch = scheduler.schedule();
    scheduler.check_integrity();
    std::vector<SequenceId> ids;
    num_tokens_ = batch.num_tokens;
    if (batch.empty()) return ids;
    StepOutput& output = in_flight_.emplace_back();
    output.step = batch.step;
    for (const ScheduledSequence& chunk : batch.sequences) {
      ids.push_back(chunk.id);
      SequenceOutput& sequence = output.sequences.emplace_back();
      sequence.id = chunk.id;
      if (chunk.samples) sequence.token_ids = {500};
    }
    return ids;
  }

  void process(Scheduler& scheduler) {
    scheduler.process(std::move(in_flight_.front()));
    in_flight_.pop_front();
  }

  std::deque<StepOutput> in_flight_;
  int64_t num_tokens_ = 0;  // of the last step
};

using Ids = std::vector<SequenceId>;

TEST_F(SchedulerStagesTest, SequencesGoRoundInGroups) {
  Scheduler scheduler(config(3));
  for (SequenceId id = 0; id < 5; ++id) add(scheduler, id, 3);
  EXPECT_EQ(schedule(scheduler), (Ids{0, 1, 2, 3, 4}));
  EXPECT_THAT(schedule(scheduler), IsEmpty()) << "all tokens are awaited";
  process(scheduler);
  EXPECT_EQ(schedule(scheduler), (Ids{0, 1}));
  EXPECT_EQ(schedule(scheduler), (Ids{2, 3}));
  EXPECT_EQ(schedule(scheduler), (Ids{4}));
  for (int round = 0; round < 4; ++round) {
    process(scheduler);
    EXPECT_EQ(schedule(scheduler), (Ids{0, 1}));
    process(scheduler);
    EXPECT_EQ(schedule(scheduler), (Ids{2, 3}));
    process(scheduler);
    EXPECT_EQ(schedule(scheduler), (Ids{4}));
  }
}

TEST_F(SchedulerStagesTest, AGroupMayFollowItselfWhenEveryStageHasAStep) {
  Scheduler scheduler(config(2));
  for (SequenceId id = 0; id < 4; ++id) add(scheduler, id, 3);
  schedule(scheduler);
  process(scheduler);
  EXPECT_EQ(schedule(scheduler), (Ids{0, 1}));
  EXPECT_EQ(schedule(scheduler), (Ids{2, 3}));
  // Before the result of its step before: the step between them keeps the other stage busy.
  EXPECT_EQ(schedule(scheduler), (Ids{0, 1}));
  process(scheduler);
  EXPECT_EQ(schedule(scheduler), (Ids{2, 3}));
  process(scheduler);
  EXPECT_EQ(schedule(scheduler), (Ids{0, 1}));
}

TEST_F(SchedulerStagesTest, GroupsOfDifferentSizesBecomeEqual) {
  Scheduler scheduler(config(2));
  add(scheduler, 0, 3);
  EXPECT_EQ(schedule(scheduler), (Ids{0}));
  for (SequenceId id = 1; id < 8; ++id) add(scheduler, id, 2);
  EXPECT_EQ(schedule(scheduler).size(), 7u);
  process(scheduler);
  EXPECT_EQ(schedule(scheduler), (Ids{0}));
  process(scheduler);
  EXPECT_EQ(schedule(scheduler), (Ids{1, 2, 3, 4})) << "half of those that decode";
  process(scheduler);
  EXPECT_EQ(schedule(scheduler), (Ids{0, 5, 6, 7}));
}

TEST_F(SchedulerStagesTest, ChunksOfAPromptFollowEachOther) {
  Scheduler scheduler(config(4));
  add(scheduler, 0, 400);
  add(scheduler, 1, 2);
  int64_t num_tokens = 0;
  for (int step = 0; step < 4; ++step) {
    EXPECT_THAT(schedule(scheduler), testing::Contains(0u));
    EXPECT_GE(num_tokens_, 16);
    num_tokens += num_tokens_;
  }
  EXPECT_LT(num_tokens, 400) << "each has a part of the prompt";
}

TEST_F(SchedulerStagesTest, OneSequenceWaitsForItsToken) {
  Scheduler scheduler(config(2));
  add(scheduler, 0, 3);
  for (int step = 0; step < 3; ++step) {
    EXPECT_THAT(schedule(scheduler), ElementsAre(0u));
    EXPECT_THAT(schedule(scheduler), IsEmpty());
    process(scheduler);
  }
}

TEST_F(SchedulerStagesTest, AChunkIsAPartOfThePromptsWithinBounds) {
  SchedulerConfig four = config(4);
  four.least_stage_chunk = 50;
  EXPECT_EQ(stage_chunk(four, 0), 50);
  EXPECT_EQ(stage_chunk(four, 16 * 60), 60);
  EXPECT_EQ(stage_chunk(four, 16 * 60 + 1), 61);
  EXPECT_EQ(stage_chunk(four, 100'000), 125) << "an eighth of the budget";
  EXPECT_EQ(stage_chunk(config(1), 100'000), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace quire
