// Clients share steps, places and blocks: what scheduler.h promises, counted in steps and tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "scheduler/scheduler.h"

namespace quire {
namespace {

constexpr uint64_t kFlood = 1;
constexpr uint64_t kOther = 2;

// The engine's loop with one step in flight, as AsyncLLM has it, and answers that never stop early.
class FairnessTest : public ::testing::Test {
 protected:
  static SchedulerConfig roomy() {
    SchedulerConfig config;
    config.max_num_batched_tokens = 4096;
    config.max_num_seqs = 256;
    config.max_model_len = 4096;
    config.num_blocks = 40'000;
    return config;
  }

  void start(const SchedulerConfig& config, int64_t max_prefill_tokens) {
    scheduler_ = std::make_unique<Scheduler>(config);
    max_prefill_tokens_ = max_prefill_tokens;
  }

  struct Wishes {
    int64_t num_prompt_tokens = 1;
    int64_t max_tokens = 1;
    int32_t weight = kDefaultClientWeight;
    int64_t priority = 0;
    bool shared_prompt = false;  // equal for all that have it
    bool prompt_logprobs = false;
  };
  SequenceId add(uint64_t client, const Wishes& wishes) {
    const SequenceId id = next_id_++;
    Request request;
    request.client = client;
    request.client_weight = wishes.weight;
    request.priority = wishes.priority;
    request.prompt_token_ids.assign(static_cast<size_t>(wishes.num_prompt_tokens),
                                    wishes.shared_prompt ? -1 : static_cast<int32_t>(id));
    request.params.max_tokens = wishes.max_tokens;
    if (wishes.prompt_logprobs) request.params.prompt_logprobs = 0;
    request.params.ignore_eos = true;
    clients_[id] = client;
    scheduler_->add(Sequence(id, std::make_shared<const Request>(std::move(request)), 0));
    return id;
  }

  // Schedules a step, and takes the results of the one before.
  const ScheduledBatch& step() {
    in_flight_.push_back(scheduler_->schedule(max_prefill_tokens_, prompt_logprobs_cost_));
    if (in_flight_.back().step % 16 == 0) scheduler_->check_integrity();
    last_ = in_flight_.back();
    if (last_.empty()) in_flight_.pop_back();
    while (in_flight_.size() > (last_.empty() ? 0 : 1)) process();
    for (const ScheduledSequence& chunk : last_.sequences) {
      tokens_[clients_.at(chunk.id)] += chunk.num_tokens;
      if (chunk.kind == ChunkKind::kPrefill) {
        prompt_tokens_[clients_.at(chunk.id)] += chunk.num_tokens;
      }
    }
    return last_;
  }

  void process() {
    StepOutput output;
    output.step = in_flight_.front().step;
    for (const ScheduledSequence& chunk : in_flight_.front().sequences) {
      SequenceOutput& sequence = output.sequences.emplace_back();
      sequence.id = chunk.id;
      if (chunk.samples) sequence.token_ids = {7};
    }
    in_flight_.pop_front();
    for (const SequenceUpdate& update : scheduler_->process(std::move(output))) {
      if (update.end) ended_.insert(update.id);
    }
  }

  static int64_t tokens_of(const ScheduledBatch& batch, SequenceId id) {
    int64_t num_tokens = 0;
    for (const ScheduledSequence& chunk : batch.sequences) {
      if (chunk.id == id) num_tokens += chunk.num_tokens;
    }
    return num_tokens;
  }

  int64_t num_waiting(uint64_t client) const {
    return std::ranges::count_if(clients_, [&](const auto& entry) {
      return entry.second == client && !ended_.contains(entry.first);
    });
  }

  std::unique_ptr<Scheduler> scheduler_;
  int64_t max_prefill_tokens_ = 0;
  int64_t prompt_logprobs_cost_ = 1;
  SequenceId next_id_ = 1;
  std::map<SequenceId, uint64_t> clients_;
  std::set<SequenceId> ended_;
  std::map<uint64_t, int64_t> tokens_;         // computed for each client
  std::map<uint64_t, int64_t> prompt_tokens_;  // of these, of prompts
  std::deque<ScheduledBatch> in_flight_;
  ScheduledBatch last_;
};

// The next step that is scheduled has a client's whole short prompt: so it waits for the step that
// runs and the one that was scheduled ahead.
TEST_F(FairnessTest, AShortRequestBesideAFloodStartsInTheNextStep) {
  start(roomy(), 1000);
  for (int i = 0; i < 128; ++i) add(kFlood, {.num_prompt_tokens = 2000, .max_tokens = 16});
  for (int round = 0; round < 60; ++round) {
    if (num_waiting(kFlood) < 64) {
      for (int i = 0; i < 128; ++i) add(kFlood, {.num_prompt_tokens = 2000, .max_tokens = 16});
    }
    for (int i = 0; i < round % 5; ++i) step();
    const SequenceId id = add(kOther, {.num_prompt_tokens = 20, .max_tokens = 8});
    EXPECT_EQ(tokens_of(step(), id), 20) << "round " << round;
    // Then it gets a token in every step.
    for (int i = 1; i < 8; ++i) EXPECT_EQ(tokens_of(step(), id), 1) << "round " << round;
    step();
    EXPECT_TRUE(ended_.contains(id));
  }
  EXPECT_GT(tokens_[kFlood], 60 * 8 * 900) << "the flood has all that is left";
}

TEST_F(FairnessTest, SoItDoesWhereTheFloodHasAllPlacesAndBlocks) {
  SchedulerConfig config = roomy();
  config.max_num_seqs = 16;
  config.num_blocks = 16 * 2100 / 16;
  start(config, 1000);
  for (int i = 0; i < 128; ++i) add(kFlood, {.num_prompt_tokens = 2000, .max_tokens = 2000});
  for (int i = 0; i < 60; ++i) step();
  ASSERT_EQ(scheduler_->stats().num_running, 16);
  ASSERT_GT(scheduler_->stats().num_used_blocks, config.num_blocks - 125);
  const int64_t before = scheduler_->stats().num_preemptions;
  for (int round = 0; round < 50; ++round) {
    const SequenceId id = add(kOther, {.num_prompt_tokens = 200, .max_tokens = 8});
    EXPECT_EQ(tokens_of(step(), id), 200) << "round " << round;
    while (!ended_.contains(id)) step();
  }
  EXPECT_LE(scheduler_->stats().num_preemptions - before, 2 * 50 + 20)
      << "it costs the flood little";
}

// Also beside many who flood.
TEST_F(FairnessTest, AShortRequestBesideManyFloodsStartsInTheNextStep) {
  start(roomy(), 2000);
  for (uint64_t client = 10; client < 30; ++client) {
    for (int i = 0; i < 16; ++i) add(client, {.num_prompt_tokens = 2000, .max_tokens = 4});
  }
  for (int round = 0; round < 40; ++round) {
    step();
    const SequenceId id = add(kOther, {.num_prompt_tokens = 20, .max_tokens = 1});
    EXPECT_EQ(tokens_of(step(), id), 20) << "round " << round;
  }
}

TEST_F(FairnessTest, EqualClientsGetEqualTokensAndWeightsAreKept) {
  start(roomy(), 500);
  const std::map<uint64_t, int32_t> weights = {{1, 100}, {2, 100}, {3, 300}, {4, 50}};
  // One sends long prompts, others many short ones: all count as the tokens that they are.
  const std::map<uint64_t, int64_t> lengths = {{1, 2000}, {2, 40}, {3, 300}, {4, 1000}};
  for (int round = 0; round < 400; ++round) {
    for (const auto& [client, weight] : weights) {
      while (num_waiting(client) < 40) {
        add(client, {.num_prompt_tokens = lengths.at(client), .max_tokens = 1, .weight = weight});
      }
    }
    step();
    EXPECT_EQ(last_.num_tokens, 500);
    // Tokens for each weight of 1, from any point on: here from the start.
    for (const auto& [client, weight] : weights) {
      const double share = static_cast<double>(weight) / 550;
      EXPECT_NEAR(static_cast<double>(tokens_[client]), share * 500 * (round + 1), 130)
          << "client " << client << " round " << round;
    }
  }
}

TEST_F(FairnessTest, TokensOfAnswersCountToo) {
  start(roomy(), 300);
  for (int i = 0; i < 100; ++i) add(1, {.num_prompt_tokens = 1, .max_tokens = 1000});
  for (int i = 0; i < 5; ++i) step();
  // 100 tokens a step go to answers of 1; its prompts get what makes it level with 2.
  for (int i = 0; i < 40; ++i) {
    add(1, {.num_prompt_tokens = 1000});
    add(2, {.num_prompt_tokens = 1000});
  }
  const int64_t before = tokens_[1];
  for (int i = 0; i < 50; ++i) step();
  EXPECT_NEAR(static_cast<double>(tokens_[1] - before), static_cast<double>(tokens_[2]), 300);
}

// They take the time of several, so a step has fewer, and their client gets fewer.
TEST_F(FairnessTest, TokensWithLogProbabilitiesCountAsWhatTheyCost) {
  start(roomy(), 500);
  prompt_logprobs_cost_ = 7;
  for (int i = 0; i < 10; ++i) add(1, {.num_prompt_tokens = 2000, .prompt_logprobs = true});
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(step().num_tokens, 72) << "500 / 7, rounded up";
  }
  const int64_t before = tokens_[1];
  for (int i = 0; i < 10; ++i) add(2, {.num_prompt_tokens = 2000});
  for (int i = 0; i < 40; ++i) step();
  EXPECT_NEAR(static_cast<double>(tokens_[1] - before), 40 * 250.0 / 7, 72);
  EXPECT_NEAR(static_cast<double>(tokens_[2]), 40 * 250.0, 500);
}

TEST_F(FairnessTest, TokensInThePrefixCacheAreFree) {
  start(roomy(), 500);
  add(1, {.num_prompt_tokens = 1600, .shared_prompt = true});
  for (int i = 0; i < 8; ++i) step();
  tokens_.clear();
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < 10; ++i) add(1, {.num_prompt_tokens = 1600, .shared_prompt = true});
    while (num_waiting(2) < 10) add(2, {.num_prompt_tokens = 1600});
    step();
    EXPECT_EQ(last_.num_tokens, 500) << "what cached prompts leave goes to others";
  }
  EXPECT_EQ(tokens_[1], 30 * 10 * 16) << "all but the last block";
}

TEST_F(FairnessTest, NoServiceIsSavedUp) {
  start(roomy(), 500);
  add(2, {.num_prompt_tokens = 10, .max_tokens = 400});  // decodes, and wants nothing else
  for (int i = 0; i < 100; ++i) {
    while (num_waiting(1) < 10) add(1, {.num_prompt_tokens = 2000});
    step();
  }
  for (int i = 0; i < 10; ++i) add(2, {.num_prompt_tokens = 2000});
  const auto before = tokens_;
  for (int i = 0; i < 20; ++i) {
    while (num_waiting(1) < 10) add(1, {.num_prompt_tokens = 2000});
    step();
  }
  EXPECT_NEAR(static_cast<double>(tokens_[1] - before.at(1)),
              static_cast<double>(tokens_[2] - before.at(2)), 501);
}

TEST_F(FairnessTest, NewcomersDoNotStarveAnyone) {
  start(roomy(), 500);
  const SequenceId id = add(1, {.num_prompt_tokens = 1000});
  uint64_t newcomer = 100;
  int num_steps = 0;
  // Each step brings as much work of new clients as it has room for.
  while (!ended_.contains(id) && num_steps < 400) {
    for (int i = 0; i < 5; ++i) add(newcomer++, {.num_prompt_tokens = 100});
    step();
    ++num_steps;
  }
  EXPECT_LT(num_steps, 300) << tokens_[1];
}

TEST_F(FairnessTest, PlacesAreSharedAndNotTakenBackAndForth) {
  SchedulerConfig config = roomy();
  config.max_num_seqs = 12;
  start(config, 500);
  for (int i = 0; i < 40; ++i) add(1, {.num_prompt_tokens = 10, .max_tokens = 1000});
  for (int i = 0; i < 10; ++i) step();
  for (int i = 0; i < 40; ++i) add(2, {.num_prompt_tokens = 10, .max_tokens = 1000});
  for (int i = 0; i < 40; ++i) add(3, {.num_prompt_tokens = 10, .max_tokens = 1000, .weight = 200});
  for (int i = 0; i < 200; ++i) step();
  std::map<uint64_t, int64_t> places;
  for (const ScheduledSequence& chunk : last_.sequences) ++places[clients_.at(chunk.id)];
  EXPECT_EQ(places, (std::map<uint64_t, int64_t>{{1, 3}, {2, 3}, {3, 6}}));
  const int64_t num_preemptions = scheduler_->stats().num_preemptions;
  EXPECT_LE(num_preemptions, 2 * 12);
  for (int i = 0; i < 200; ++i) step();
  EXPECT_EQ(scheduler_->stats().num_preemptions, num_preemptions);
}

// Who holds the most blocks gives up what another needs for its next token.
TEST_F(FairnessTest, BlocksAreTakenFromWhoHoldsTheMost) {
  SchedulerConfig config = roomy();
  config.max_model_len = 64;
  config.num_blocks = 40;
  start(config, 500);
  const SequenceId small = add(2, {.num_prompt_tokens = 16, .max_tokens = 40});
  step();
  for (int i = 0; i < 12; ++i) add(1, {.num_prompt_tokens = 40, .max_tokens = 20});
  while (!ended_.contains(small)) {
    step();
    EXPECT_EQ(std::ranges::count(last_.added, small, &NewSequence::id), 0) << "it was preempted";
  }
  EXPECT_GT(scheduler_->stats().num_preemptions, 0);
}

TEST_F(FairnessTest, LowerPrioritiesGoFirstWithinAClient) {
  SchedulerConfig config = roomy();
  config.max_num_seqs = 1;
  start(config, 500);
  std::vector<SequenceId> order;
  add(1, {.num_prompt_tokens = 10, .priority = 5});
  add(1, {.num_prompt_tokens = 10, .priority = -1});
  add(1, {.num_prompt_tokens = 10, .priority = 5});
  add(1, {.num_prompt_tokens = 10});
  for (int i = 0; i < 12; ++i) {
    for (const ScheduledSequence& chunk : step().sequences) order.push_back(chunk.id);
  }
  EXPECT_EQ(order, (std::vector<SequenceId>{2, 4, 1, 3}));
}

// No priority reaches across clients.
TEST_F(FairnessTest, APriorityCountsOnlyWithinItsClient) {
  start(roomy(), 100);
  for (int i = 0; i < 10; ++i) add(1, {.num_prompt_tokens = 1000, .priority = -100});
  for (int i = 0; i < 10; ++i) add(2, {.num_prompt_tokens = 1000, .priority = 100});
  for (int i = 0; i < 20; ++i) step();
  EXPECT_NEAR(static_cast<double>(tokens_[1]), static_cast<double>(tokens_[2]), 2);
}

// Random clients, configurations and times: a step leaves no budget while something could run, and
// a client's first prompt does not wait where there is a place for it and there are blocks.
TEST_F(FairnessTest, RandomSchedulesKeepWhatIsPromised) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto pick = [&random](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    in_flight_.clear();
    clients_.clear();
    ended_.clear();
    SchedulerConfig config = roomy();
    config.max_num_seqs = pick(100, 300);
    const int64_t budget = pick(64, 1500);
    start(config, budget);
    // As many as kMaxSharingPrefills share every step; each of them gets its part.
    const int64_t num_clients = pick(1, Scheduler::kMaxSharingPrefills);
    std::map<uint64_t, SequenceId> first;
    for (int iteration = 0; iteration < 40; ++iteration) {
      first.clear();
      for (uint64_t client = 1; client <= static_cast<uint64_t>(num_clients); ++client) {
        if (pick(1, 3) > 1) continue;
        const bool is_idle = num_waiting(client) == 0;
        for (int64_t i = pick(1, 6); i > 0; --i) {
          const SequenceId id =
              add(client, {.num_prompt_tokens = pick(1, 1200), .max_tokens = pick(1, 5)});
          if (is_idle) first.try_emplace(client, id);
        }
      }
      step();
      for (const auto& [client, id] : first) {
        EXPECT_GT(tokens_of(last_, id), 0) << "the first prompt of " << client;
      }
      int64_t num_prompt_tokens = 0;
      std::set<SequenceId> scheduled;
      for (const ScheduledSequence& chunk : last_.sequences) {
        if (chunk.kind == ChunkKind::kPrefill) num_prompt_tokens += chunk.num_tokens;
        scheduled.insert(chunk.id);
      }
      EXPECT_LE(num_prompt_tokens, budget);
      EXPECT_TRUE(num_prompt_tokens == budget || scheduler_->stats().num_waiting == 0)
          << "budget is left, and a sequence waits";
    }
  }
}

}  // namespace
}  // namespace quire
