// Sequences with adapters: who waits for whom, and for how long.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "scheduler/scheduler.h"

namespace quire {
namespace {

struct Asked {
  uint64_t lora_id = 0;
  uint64_t client = 0;
  int64_t priority = 0;
  int64_t max_tokens = 4;
};

// One adapter runs at a time, and every step's results are known before the next.
class SchedulerLoraTest : public ::testing::Test {
 protected:
  static SchedulerConfig config() {
    SchedulerConfig config;
    config.max_num_batched_tokens = 100;
    config.max_num_seqs = 8;
    config.max_model_len = 1000;
    config.block_size = 4;
    config.num_blocks = 1000;
    config.enable_prefix_caching = false;
    config.max_loras = 1;
    return config;
  }

  SequenceId add(const Asked& asked) {
    Request request;
    request.prompt_token_ids = {1, 2};
    request.params.max_tokens = asked.max_tokens;
    request.lora_id = asked.lora_id;
    request.client = asked.client;
    request.priority = asked.priority;
    const SequenceId id = next_id_++;
    scheduler_.add({id, std::make_shared<const Request>(std::move(request)), 0});
    return id;
  }

  // The sequences that began in the next step.
  std::set<SequenceId> step() {
    const ScheduledBatch batch = scheduler_.schedule();
    scheduler_.check_integrity();
    StepOutput output;
    output.step = batch.step;
    for (const ScheduledSequence& chunk : batch.sequences) {
      SequenceOutput& sequence = output.sequences.emplace_back();
      sequence.id = chunk.id;
      if (chunk.samples) sequence.token_ids = {500};
    }
    if (!batch.empty()) scheduler_.process(output);
    scheduler_.check_integrity();
    std::set<SequenceId> began;
    for (const NewSequence& sequence : batch.added) began.insert(sequence.id);
    return began;
  }

  void finish() {
    while (scheduler_.has_unfinished()) step();
    EXPECT_EQ(scheduler_.stats().num_running_loras, 0);
  }

  Scheduler scheduler_{config()};
  SequenceId next_id_ = 1;
};

// A sequence of another adapter lets those of the base and of the running adapter pass, but not for
// ever.
TEST_F(SchedulerLoraTest, AnAdapterThatHasToWaitHasItsTurn) {
  add({.lora_id = 7});
  step();
  const SequenceId waiting = add({.lora_id = 8, .client = 1});
  const SequenceId of_base = add({});
  EXPECT_TRUE(step().contains(of_base));
  EXPECT_EQ(scheduler_.stats().num_lora_waits, 1);
  EXPECT_EQ(scheduler_.stats().num_running_loras, 1);
  // The running adapter never ends by itself.
  int64_t num_passed = 0;
  bool has_begun = false;
  for (int i = 0; !has_begun && i < 10 * Scheduler::kMaxLoraOvertakes; ++i) {
    const SequenceId newcomer = add({.lora_id = 7, .client = next_id_ % 2});
    const std::set<SequenceId> began = step();
    num_passed += began.contains(newcomer) ? 1 : 0;
    has_begun = began.contains(waiting);
  }
  EXPECT_TRUE(has_begun);
  EXPECT_EQ(num_passed, Scheduler::kMaxLoraOvertakes);
  finish();
}

// However many wait before it, and whatever becomes of these.
TEST_F(SchedulerLoraTest, EachThatWaitsIsOvertakenOnlySoOften) {
  add({.lora_id = 7});
  step();
  std::map<SequenceId, int64_t> overtakes;
  for (uint64_t i = 0; i < 6; ++i) overtakes[add({.lora_id = 10 + i})] = 0;
  step();  // which finds that they have to wait
  const SequenceId aborted = overtakes.begin()->first;
  for (int i = 0; !overtakes.empty() && i < 2000; ++i) {
    add({.lora_id = 7, .client = 1});
    if (i == Scheduler::kMaxLoraOvertakes / 2) {
      scheduler_.abort(aborted);
      overtakes.erase(aborted);
    }
    for (const SequenceId id : step()) {
      overtakes.erase(id);
      for (auto& [waiting, count] : overtakes) count += waiting < id ? 1 : 0;
    }
    for (const auto& [waiting, count] : overtakes) {
      ASSERT_LE(count, Scheduler::kMaxLoraOvertakes) << waiting;
    }
  }
  EXPECT_TRUE(overtakes.empty());
  finish();
}

// Two clients: one has sequences with adapters behind its own stream of others, the other one a
// stream with an adapter.
class SchedulerLoraClientsTest : public SchedulerLoraTest {
 protected:
  static constexpr uint64_t kHolding = 1;
  static constexpr uint64_t kOther = 2;

  // A step, with one request of the other client before every third.
  void stream_step() {
    while (num_of_base_ < 10) {
      of_base_.insert(add({.client = kHolding, .max_tokens = 20}));
      ++num_of_base_;
    }
    if (num_steps_++ % 3 == 0) waiting_since_[add({.lora_id = 7, .client = kOther})] = num_steps_;
    for (const SequenceId id : step()) {
      began_.insert(id);
      num_of_base_ -= of_base_.contains(id) ? 1 : 0;
      waiting_since_.erase(id);
    }
    for (const auto& [id, since] : waiting_since_) {
      longest_wait_ = std::max(longest_wait_, num_steps_ - since);
    }
  }

  std::set<SequenceId> of_base_;
  std::set<SequenceId> began_;
  std::map<SequenceId, int> waiting_since_;
  int num_of_base_ = 0;  // that wait
  int num_steps_ = 0;
  int longest_wait_ = 0;
};

// One whose client has other sequences go first does not keep an adapter's place from others.
TEST_F(SchedulerLoraClientsTest, OneThatItsOwnClientHoldsUpHoldsUpNobodyElse) {
  add({.lora_id = 7, .client = kOther});
  step();
  const SequenceId held = add({.lora_id = 8, .client = kHolding, .priority = 9});
  step();
  ASSERT_EQ(scheduler_.stats().num_lora_waits, 1);
  for (int i = 0; i < 600; ++i) stream_step();
  EXPECT_FALSE(began_.contains(held));
  EXPECT_LE(longest_wait_, 4 * Scheduler::kMaxUnusedLoraTurns);
  finish();
}

// Nor do many of them, one after the other.
TEST_F(SchedulerLoraClientsTest, ManyThatTheirClientHoldsUpHoldUpNobodyForLong) {
  add({.lora_id = 7, .client = kOther});
  step();
  for (uint64_t i = 0; i < 50; ++i) {
    add({.lora_id = 100 + i, .client = kHolding, .priority = 9});
    add({.lora_id = 7, .client = kOther});
    step();
  }
  EXPECT_EQ(scheduler_.stats().num_lora_waits, 50);
  for (int i = 0; i < 600; ++i) stream_step();
  EXPECT_LE(longest_wait_, 4 * Scheduler::kMaxUnusedLoraTurns);
  finish();
}

}  // namespace
}  // namespace quire
