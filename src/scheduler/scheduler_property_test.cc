// Random workloads on random configurations, of one client and of several, with batches that were
// bytes. Whatever the schedule, each sequence's tokens are those it would get alone; limits are
// kept; no step leaves room unused; nothing leaks, starves, or is used twice.
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "base/sanitized_test_util.h"
#include "request/batch_encoding.h"
#include "scheduler/mock_runner.h"
#include "scheduler/random_workload.h"
#include "scheduler/schedule_watcher.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

using scheduler_internal::Drafter;
using scheduler_internal::expected_result;
using scheduler_internal::Job;
using scheduler_internal::JobResult;
using scheduler_internal::kMockVocabSize;
using scheduler_internal::MockRunner;
using scheduler_internal::Random;
using scheduler_internal::random_config;
using scheduler_internal::random_workload;
using scheduler_internal::ScheduleWatcher;
using scheduler_internal::Workload;
using scheduler_internal::WorkloadOptions;

// The engine's loop, with `depth` steps in flight while the next is scheduled.
class Simulation {
 public:
  // Without a drafter, a step brings one token of a sequence. `failures`: says which steps fail;
  // none: none does.
  Simulation(const Workload& workload, const SchedulerConfig& config, int64_t max_prefill_tokens,
             size_t depth, std::optional<Drafter> drafter,
             std::optional<Random> failures = std::nullopt)
      : workload_(workload),
        config_(config),
        max_prefill_tokens_(max_prefill_tokens),
        depth_(depth),
        drafter_(std::move(drafter)),
        failures_(failures),
        scheduler_(config),
        watcher_(config, max_prefill_tokens),
        runner_(config.num_blocks, config.block_size, kMockVocabSize, config.max_model_len) {
    if (config.num_stages > 1) runner_.expect_exact_starts();
  }

  std::map<SequenceId, JobResult> run() {
    int64_t num_tokens = 0;
    for (const Job& job : workload_.jobs) {
      num_tokens += job.request->num_prompt_tokens() + config_.max_model_len;
    }
    // Sequences that are computed one after another take a step for each of their tokens.
    const int64_t most_iterations = 200 + 3 * num_tokens;
    while (num_added_ < workload_.jobs.size() || scheduler_.has_unfinished() || !outputs_.empty()) {
      if (iteration_ >= most_iterations) {
        ADD_FAILURE() << "not done after " << iteration_ << " steps";
        break;
      }
      step();
      if (::testing::Test::HasFailure()) break;
      ++iteration_;
    }
    finish();
    return std::move(results_);
  }

  SchedulerStats stats() const { return scheduler_.stats(); }
  const MockRunner& runner() const { return runner_; }
  // Whether the clients from 0 on had sequences running when this one came.
  bool came_beside(SequenceId id, int64_t num_clients) const {
    return num_busy_.at(id) >= num_clients;
  }
  // The iteration in which a sequence's first token was scheduled.
  int64_t first_sampled(SequenceId id) const { return first_sampled_.at(id); }

 private:
  void step() {
    for (const Job& job : workload_.jobs) {
      if (job.arrival == iteration_) add(job);
      if (job.abort_at == iteration_) abort(job.id);
    }
    if (drafter_) propose();
    const ScheduledBatch batch = scheduler_.schedule(max_prefill_tokens_);
    scheduler_.check_integrity();
    watcher_.scheduled(batch, scheduler_.stats());
    for (const ScheduledSequence& chunk : batch.sequences) {
      if (chunk.samples) first_sampled_.try_emplace(chunk.id, iteration_);
    }
    if (!batch.empty() || !batch.removed.empty()) {
      // Every other batch as a rank in another process gets it.
      StepOutput output = is_void(batch)        ? runner_.skip(batch)
                          : iteration_ % 2 == 0 ? runner_.run(batch)
                                                : runner_.run(decode_batch(encode_batch(batch)));
      if (failed_step_ == batch.step) output.failure = "There is no memory.";
      if (!batch.empty()) outputs_.push_back(std::move(output));
    }
    const bool stuck = batch.empty() && outputs_.empty() && scheduler_.has_unfinished();
    EXPECT_FALSE(stuck) << "nothing runs and nothing is awaited";
    while (outputs_.size() > (batch.empty() ? 0 : depth_)) process();
  }

  // Whether a step fails, or was scheduled before it was known that another one had.
  bool is_void(const ScheduledBatch& batch) {
    if (batch.num_failed_steps < num_failed_steps_) return true;
    if (batch.empty() || !failures_ || num_failed_steps_ == 4 || !failures_->one_in(10)) {
      return false;
    }
    failed_step_ = batch.step;
    ++num_failed_steps_;
    return true;
  }

  void add(const Job& job) {
    runner_.set_salt(job.id, job.request->cache_salt);
    scheduler_.add(Sequence(job.id, job.request, job.index));
    watcher_.added(job.id, job.request);
    results_[job.id];
    int64_t& num_busy = num_busy_[job.id];
    while (watcher_.num_running(static_cast<uint64_t>(num_busy)) > 0) ++num_busy;
    ++num_added_;
  }

  void propose() {
    for (const auto& [id, result] : results_) {
      if (result.is_over()) continue;
      scheduler_.propose(id, drafter_->draft(workload_.jobs[id], result.token_ids));
    }
  }

  void abort(SequenceId id) {
    // Before it arrives, after it ended, and twice: without effect.
    scheduler_.abort(id);
    scheduler_.check_integrity();
    const auto it = results_.find(id);
    if (it == results_.end() || it->second.is_over()) return;
    it->second.aborted = true;
    watcher_.ended(id);
  }

  void process() {
    for (const SequenceOutput& output : outputs_.front().sequences) {
      if (output.token_ids.empty()) continue;
      watcher_.processed(output.id, outputs_.front().is_void ? 0 : std::ssize(output.token_ids));
    }
    const auto updates = scheduler_.process(std::move(outputs_.front()));
    outputs_.pop_front();
    scheduler_.check_integrity();
    for (const SequenceUpdate& update : updates) {
      JobResult& result = results_.at(update.id);
      const Job& job = workload_.jobs[update.id];
      EXPECT_FALSE(result.is_over()) << "an update after the end of " << update.id;
      verify_cached(job, update.num_cached_tokens);
      for (const TokenLogprobs& logprobs : update.prompt_logprobs) {
        result.prompt_logprob_ids.push_back(logprobs.token_ids.at(0));
      }
      take_tokens(job, update, result);
      if (result.is_over()) watcher_.ended(update.id);
    }
  }

  void take_tokens(const Job& job, const SequenceUpdate& update, JobResult& result) {
    EXPECT_EQ(update.logprobs.size(), job.request->params.logprobs ? update.token_ids.size() : 0);
    for (size_t i = 0; i < update.token_ids.size(); ++i) {
      result.token_ids.push_back(update.token_ids[i]);
      if (job.request->params.logprobs) {
        EXPECT_EQ(update.logprobs[i].token_ids, std::vector<int32_t>{update.token_ids[i]});
      }
      const bool ends = update.end && i + 1 == update.token_ids.size();
      if (!ends && job.finish_after == std::ssize(result.token_ids)) {
        result.ended_from_outside = true;
        scheduler_.finish(update.id, FinishReason::kStop);
        scheduler_.check_integrity();
        return;  // what is behind such an end is dropped
      }
    }
    if (update.end) result.end = update.end;
  }

  void verify_cached(const Job& job, int64_t num_cached) const {
    EXPECT_EQ(num_cached % config_.block_size, 0);
    EXPECT_LT(num_cached, job.request->num_prompt_tokens());
    if (!config_.enable_prefix_caching || job.request->params.prompt_logprobs) {
      EXPECT_EQ(num_cached, 0);
    }
  }

  void finish() {
    if (::testing::Test::HasFailure()) return;
    const ScheduledBatch last = scheduler_.schedule();
    EXPECT_TRUE(last.empty());
    runner_.run(last);
    EXPECT_FALSE(runner_.knows_any()) << "the runner was not told of every end";
    EXPECT_EQ(scheduler_.stats().num_used_blocks, 0);
    EXPECT_EQ(scheduler_.stats().num_in_flight, 0);
    int64_t num_finished = 0;
    for (const int64_t count : scheduler_.stats().num_finished) num_finished += count;
    EXPECT_EQ(num_finished, std::ssize(workload_.jobs));
  }

  const Workload& workload_;
  SchedulerConfig config_;
  int64_t max_prefill_tokens_;
  size_t depth_;
  std::optional<Drafter> drafter_;
  std::optional<Random> failures_;
  std::optional<uint64_t> failed_step_;
  uint64_t num_failed_steps_ = 0;
  Scheduler scheduler_;
  ScheduleWatcher watcher_;
  MockRunner runner_;
  std::deque<StepOutput> outputs_;
  std::map<SequenceId, JobResult> results_;
  std::map<SequenceId, int64_t> num_busy_;  // clients from 0 on that ran when it came
  std::map<SequenceId, int64_t> first_sampled_;
  size_t num_added_ = 0;
  int64_t iteration_ = 0;
};

void expect_prefix(const JobResult& result, const JobResult& expected) {
  EXPECT_LE(result.token_ids.size(), expected.token_ids.size());
  EXPECT_TRUE(
      std::equal(result.token_ids.begin(), result.token_ids.end(), expected.token_ids.begin()));
}

// Each sequence has the tokens that it gets alone.
void expect_own_tokens(const Workload& workload, const std::map<SequenceId, JobResult>& results) {
  ASSERT_EQ(results.size(), workload.jobs.size());
  for (const Job& job : workload.jobs) {
    SCOPED_TRACE("sequence " + std::to_string(job.id));
    const JobResult expected = expected_result(job, workload.max_model_len);
    const JobResult& result = results.at(job.id);
    if (result.aborted) {
      expect_prefix(result, expected);
    } else {
      EXPECT_TRUE(result == expected);
    }
  }
}

struct RunOptions {
  uint64_t first_seed = 0;
  size_t depth = 0;
  bool with_drafts = false;
  WorkloadOptions workload{};
  int num_stages = 1;
  int num_workloads = kSanitized ? 200 : 2000;
  bool with_failures = false;
};

void run_random_workloads(const RunOptions& options) {
  const int num_workloads = options.num_workloads;
  int64_t num_preemptions = 0;
  int64_t num_hit_tokens = 0;
  int64_t num_kept_drafts = 0;
  int64_t num_rejected_drafts = 0;
  for (uint64_t seed = options.first_seed;
       seed < options.first_seed + static_cast<uint64_t>(num_workloads); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Workload workload = random_workload(random, options.workload);
    SchedulerConfig config = random_config(random, workload.max_model_len);
    if (options.workload.num_loras > 0) config.max_loras = static_cast<int>(random.pick(1, 3));
    config.num_stages = options.num_stages;
    if (options.num_stages > 1) config.least_stage_chunk = random.pick(1, 60);
    const int64_t max_prefill_tokens =
        random.one_in(2) ? std::numeric_limits<int64_t>::max() : random.pick(1, 60);
    Simulation simulation(workload, config, max_prefill_tokens, options.depth,
                          options.with_drafts ? std::optional(Drafter(seed)) : std::nullopt,
                          options.with_failures ? std::optional(Random(seed)) : std::nullopt);
    expect_own_tokens(workload, simulation.run());
    if (::testing::Test::HasFailure()) return;
    num_preemptions += simulation.stats().num_preemptions;
    num_hit_tokens += simulation.stats().prefix_cache_hit_tokens;
    num_kept_drafts += simulation.runner().num_kept_drafts();
    num_rejected_drafts += simulation.runner().num_rejected_drafts();
  }
  // The workloads are such that they test something.
  EXPECT_GT(num_preemptions, num_workloads / 2);
  EXPECT_GT(num_hit_tokens, num_workloads);
  EXPECT_EQ(num_kept_drafts > 3 * num_workloads, options.with_drafts) << num_kept_drafts;
  EXPECT_EQ(num_rejected_drafts > 3 * num_workloads, options.with_drafts) << num_rejected_drafts;
}

TEST(SchedulerPropertyTest, ResultsAtOnce) {
  run_random_workloads({.first_seed = 1});
}
TEST(SchedulerPropertyTest, OneStepInFlight) {
  run_random_workloads({.first_seed = 100'000, .depth = 1});
}
TEST(SchedulerPropertyTest, ThreeStepsInFlight) {
  run_random_workloads({.first_seed = 200'000, .depth = 3});
}
TEST(SchedulerPropertyTest, AbortsWithResultsAtOnce) {
  run_random_workloads({.first_seed = 300'000, .workload = {.with_aborts = true}});
}
TEST(SchedulerPropertyTest, AbortsWithOneStepInFlight) {
  run_random_workloads({.first_seed = 400'000, .depth = 1, .workload = {.with_aborts = true}});
}
TEST(SchedulerPropertyTest, AbortsWithThreeStepsInFlight) {
  run_random_workloads({.first_seed = 500'000, .depth = 3, .workload = {.with_aborts = true}});
}

// Steps that find no memory: what runs is computed anew, and nothing that they should have computed
// is taken for computed.
TEST(SchedulerPropertyTest, FailuresAtOnce) {
  run_random_workloads({.first_seed = 2'500'000, .with_failures = true});
}
TEST(SchedulerPropertyTest, FailuresWithOneStepInFlight) {
  run_random_workloads({.first_seed = 2'600'000,
                        .depth = 1,
                        .workload = {.with_aborts = true},
                        .with_failures = true});
}
TEST(SchedulerPropertyTest, FailuresOfClientsWithThreeStepsInFlight) {
  run_random_workloads({.first_seed = 2'700'000,
                        .depth = 3,
                        .workload = {.with_aborts = true, .num_clients = 3, .num_loras = 4},
                        .with_failures = true});
}

// Sequences with adapters, of which only a few may run at a time.
TEST(SchedulerPropertyTest, LorasAtOnce) {
  run_random_workloads({.first_seed = 2'000'000, .workload = {.num_loras = 4}});
}
TEST(SchedulerPropertyTest, LorasWithOneStepInFlight) {
  run_random_workloads(
      {.first_seed = 2'100'000, .depth = 1, .workload = {.with_aborts = true, .num_loras = 4}});
}
TEST(SchedulerPropertyTest, LorasOfClientsWithThreeStepsInFlight) {
  run_random_workloads({.first_seed = 2'200'000,
                        .depth = 3,
                        .workload = {.with_aborts = true, .num_clients = 3, .num_loras = 4}});
}

// What a sequence gets, one to five tokens a step, is what it gets one a step.
TEST(SchedulerPropertyTest, SeveralTokensAStepAtOnce) {
  run_random_workloads({.first_seed = 600'000, .with_drafts = true});
}
TEST(SchedulerPropertyTest, SeveralTokensAStepWithOneInFlight) {
  run_random_workloads({.first_seed = 700'000, .depth = 1, .with_drafts = true});
}
TEST(SchedulerPropertyTest, SeveralTokensAStepWithThreeInFlight) {
  run_random_workloads({.first_seed = 800'000, .depth = 3, .with_drafts = true});
}
TEST(SchedulerPropertyTest, SeveralTokensAStepWithAborts) {
  run_random_workloads(
      {.first_seed = 900'000, .depth = 1, .with_drafts = true, .workload = {.with_aborts = true}});
}

// Clients with weights and priorities take tokens, places and blocks from each other.
TEST(SchedulerPropertyTest, ClientsAtOnce) {
  run_random_workloads({.first_seed = 1'000'000, .workload = {.num_clients = 3}});
}
TEST(SchedulerPropertyTest, ClientsWithOneStepInFlight) {
  run_random_workloads(
      {.first_seed = 1'100'000, .depth = 1, .workload = {.with_aborts = true, .num_clients = 2}});
}
TEST(SchedulerPropertyTest, ClientsWithThreeStepsInFlight) {
  run_random_workloads(
      {.first_seed = 1'200'000, .depth = 3, .workload = {.with_aborts = true, .num_clients = 6}});
}
TEST(SchedulerPropertyTest, ClientsWithSeveralTokensAStepAtOnce) {
  run_random_workloads(
      {.first_seed = 1'300'000, .with_drafts = true, .workload = {.num_clients = 4}});
}
TEST(SchedulerPropertyTest, ClientsWithSeveralTokensAStepAndOneInFlight) {
  run_random_workloads({.first_seed = 1'400'000,
                        .depth = 1,
                        .with_drafts = true,
                        .workload = {.with_aborts = true, .num_clients = 3}});
}
TEST(SchedulerPropertyTest, ClientsWithSeveralTokensAStepAndThreeInFlight) {
  run_random_workloads({.first_seed = 1'500'000,
                        .depth = 3,
                        .with_drafts = true,
                        .workload = {.with_aborts = true, .num_clients = 2}});
}

// Stages at work on as many steps, with one more scheduled ahead of them, and without.
void run_with_stages(int num_stages) {
  const uint64_t first_seed = 3'000'000 + 100'000 * static_cast<uint64_t>(num_stages);
  for (const bool ahead : {false, true}) {
    for (const int64_t num_clients : {1, 4}) {
      run_random_workloads({.first_seed = first_seed,
                            .depth = static_cast<size_t>(num_stages - 1 + (ahead ? 1 : 0)),
                            .workload = {.with_aborts = true,
                                         .num_clients = num_clients,
                                         .num_loras = num_clients == 1 ? 0 : 4},
                            .num_stages = num_stages,
                            .num_workloads = 150});
    }
  }
}

TEST(SchedulerPropertyTest, OneStage) {
  run_with_stages(1);
}
TEST(SchedulerPropertyTest, TwoStages) {
  run_with_stages(2);
}
TEST(SchedulerPropertyTest, ThreeStages) {
  run_with_stages(3);
}
TEST(SchedulerPropertyTest, FourStages) {
  run_with_stages(4);
}
// Drafts are verified by some of the steps, while other sequences go round.
void run_with_stages_and_drafts(int num_stages) {
  const uint64_t first_seed = 4'000'000 + 100'000 * static_cast<uint64_t>(num_stages);
  for (const bool ahead : {false, true}) {
    for (const int64_t num_clients : {1, 4}) {
      run_random_workloads({.first_seed = first_seed,
                            .depth = static_cast<size_t>(num_stages - 1 + (ahead ? 1 : 0)),
                            .with_drafts = true,
                            .workload = {.with_aborts = true,
                                         .num_clients = num_clients,
                                         .num_loras = num_clients == 1 ? 0 : 4},
                            .num_stages = num_stages,
                            .num_workloads = 100});
    }
  }
}

TEST(SchedulerPropertyTest, TwoStagesWithDrafts) {
  run_with_stages_and_drafts(2);
}
TEST(SchedulerPropertyTest, ThreeStagesWithDrafts) {
  run_with_stages_and_drafts(3);
}
TEST(SchedulerPropertyTest, FourStagesWithDrafts) {
  run_with_stages_and_drafts(4);
}

TEST(SchedulerPropertyTest, FourStagesWithResultsAtOnce) {
  run_random_workloads({.first_seed = 3'900'000, .num_stages = 4, .num_workloads = 150});
}

// Floods of a few clients, and now and then the one short request of another.
constexpr uint64_t kFirstVisitor = 100;
constexpr int64_t kNumVisitors = 6;
constexpr int kNumFloods = 200;

Workload flood_workload(Random& random, int64_t num_floods) {
  Workload workload;
  workload.max_model_len = random.pick(24, 80);
  const auto add = [&](uint64_t client, int64_t num_tokens, int64_t max_tokens, int64_t n,
                       int64_t arrival) {
    Request facts;
    facts.number = workload.jobs.size();
    facts.client = client;
    facts.priority = random.pick(-1, 1);
    facts.prompt_token_ids = scheduler_internal::random_tokens(random, num_tokens);
    facts.params.max_tokens = max_tokens;
    facts.params.ignore_eos = random.one_in(2);
    facts.seed = static_cast<uint64_t>(random.pick(0, 3));
    scheduler_internal::add_jobs(workload, std::move(facts), n, arrival);
    if (client < kFirstVisitor && random.one_in(6)) {
      workload.jobs.back().abort_at = arrival + random.pick(0, 40);
    }
  };
  int64_t arrival = 0;
  for (uint64_t visitor = kFirstVisitor; visitor < kFirstVisitor + kNumVisitors; ++visitor) {
    for (int64_t i = 0; i < 8; ++i) {
      add(static_cast<uint64_t>(random.pick(0, num_floods - 1)),
          random.pick(1, workload.max_model_len - 1), random.pick(1, 40), random.pick(1, 4),
          arrival);
    }
    arrival += random.pick(1, 12);
    add(visitor, random.pick(1, 8), random.pick(1, 8), 1, arrival);
  }
  return workload;
}

// Room for what scheduler.h says that another client's request needs to start in the next step: a
// part of the step's prompt tokens, places and blocks that the floods can give up. Where there are
// several, they never wait for blocks: one that held none might be first to get some.
SchedulerConfig flood_config(Random& random, const Workload& workload, int64_t num_floods) {
  SchedulerConfig config = random_config(random, workload.max_model_len);
  config.max_num_seqs = random.pick(2 * num_floods + kNumVisitors, 16);
  config.max_num_batched_tokens = random.pick(2 * 16 + 8 * (num_floods + 2), 200);
  const auto blocks = [&](int64_t num_tokens) { return num_tokens / config.block_size + 1; };
  const int64_t longest = blocks(workload.max_model_len);
  config.num_blocks = num_floods > 1 ? config.max_num_seqs * longest
                                     : blocks(8) + longest + kNumVisitors * blocks(16) +
                                           config.max_num_seqs + random.pick(0, 20);
  return config;
}

TEST(SchedulerPropertyTest, AShortRequestBesideFloodsStartsInTheNextStep) {
  int64_t num_preemptions = 0;
  int64_t num_visits = 0;
  for (uint64_t seed = 1; seed <= kNumFloods; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int64_t num_floods = random.one_in(3) ? random.pick(2, 3) : 1;
    const Workload workload = flood_workload(random, num_floods);
    const SchedulerConfig config = flood_config(random, workload, num_floods);
    const int64_t max_prefill_tokens = random.pick(8 * (num_floods + 2), 100);
    const size_t depth = static_cast<size_t>(random.pick(0, 3));
    Simulation simulation(workload, config, max_prefill_tokens, depth,
                          random.one_in(2) ? std::optional(Drafter(seed)) : std::nullopt);
    expect_own_tokens(workload, simulation.run());
    if (::testing::Test::HasFailure()) return;
    for (const Job& job : workload.jobs) {
      if (job.request->client < kFirstVisitor || !simulation.came_beside(job.id, num_floods)) {
        continue;
      }
      ++num_visits;
      EXPECT_EQ(simulation.first_sampled(job.id), job.arrival) << "sequence " << job.id;
    }
    if (::testing::Test::HasFailure()) return;
    num_preemptions += simulation.stats().num_preemptions;
  }
  EXPECT_GT(num_preemptions, kNumFloods);
  EXPECT_GT(num_visits, kNumFloods * kNumVisitors / 2);
}

}  // namespace
}  // namespace quire
