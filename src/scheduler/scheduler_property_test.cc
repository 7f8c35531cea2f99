// Random workloads on random configurations, with batches that were bytes. Whatever the schedule,
// each sequence's tokens are those it would get alone; limits are kept; nothing leaks, starves, or
// is used twice.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "request/batch_encoding.h"
#include "scheduler/mock_runner.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

using scheduler_internal::mock_next_token;
using scheduler_internal::MockRunner;

constexpr int32_t kVocabSize = 23;
const std::vector<int32_t> kEosIds = {0, 1};

struct Job {
  SequenceId id = 0;
  std::shared_ptr<const Request> request;
  uint32_t index = 0;
  int64_t arrival = 0;  // the iteration of the loop at which it is added
  // Ended from outside once that many tokens have come, as by a stop string.
  std::optional<int64_t> finish_after;
  std::optional<int64_t> abort_at;  // the iteration
};

struct Result {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> prompt_logprob_ids;
  std::optional<SequenceEnd> end;
  bool ended_from_outside = false;
  bool aborted = false;
  bool operator==(const Result& other) const {
    return token_ids == other.token_ids && prompt_logprob_ids == other.prompt_logprob_ids &&
           ended_from_outside == other.ended_from_outside && aborted == other.aborted &&
           end.has_value() == other.end.has_value() &&
           (!end ||
            (end->reason == other.end->reason && end->stop_token_id == other.end->stop_token_id));
  }
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // From low to high, both included.
  int64_t pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int64_t n) { return pick(1, n) == 1; }

 private:
  std::mt19937_64 engine_;
};

struct Workload {
  int64_t max_model_len = 0;
  std::vector<Job> jobs;
};

SamplingParams random_params(Random& random) {
  SamplingParams params;
  params.max_tokens = random.one_in(8) ? std::nullopt : std::optional(random.pick(1, 40));
  params.min_tokens = random.pick(0, params.max_tokens.value_or(5));
  params.ignore_eos = random.one_in(2);
  if (random.one_in(4)) params.stop_token_ids = {5};
  if (random.one_in(6)) params.prompt_logprobs = 0;
  if (random.one_in(6)) params.logprobs = 1;
  return params;
}

Workload random_workload(Random& random, bool with_aborts) {
  Workload workload;
  workload.max_model_len = random.pick(8, 80);
  std::vector<std::vector<int32_t>> stems(3);
  for (auto& stem : stems) {
    stem.resize(static_cast<size_t>(random.pick(0, workload.max_model_len - 1)));
    for (int32_t& id : stem) id = static_cast<int32_t>(random.pick(0, kVocabSize - 1));
  }
  int64_t arrival = 0;
  const int64_t num_requests = random.pick(1, 7);
  for (int64_t request = 0; request < num_requests; ++request) {
    Request facts;
    facts.number = static_cast<uint64_t>(request);
    std::vector<int32_t>& prompt = facts.prompt_token_ids;
    prompt = stems[static_cast<size_t>(random.pick(0, 2))];
    const int64_t num_more = random.pick(0, 6);
    for (int64_t i = 0; i < num_more; ++i) {
      prompt.push_back(static_cast<int32_t>(random.pick(0, kVocabSize - 1)));
    }
    prompt.resize(static_cast<size_t>(
        std::clamp<int64_t>(std::ssize(prompt), 1, workload.max_model_len - 1)));
    if (random.one_in(2)) arrival += random.pick(0, 10);
    facts.params = random_params(random);
    facts.seed = static_cast<uint64_t>(random.pick(0, 3));
    facts.cache_salt = random.one_in(4) ? "salt" : "";
    const auto shared = std::make_shared<const Request>(std::move(facts));
    const int64_t n = random.one_in(3) ? random.pick(2, 4) : 1;
    for (int64_t index = 0; index < n; ++index) {
      Job job;
      job.id = workload.jobs.size();
      job.request = shared;
      job.index = static_cast<uint32_t>(index);
      job.arrival = arrival;
      if (random.one_in(8)) job.finish_after = random.pick(1, 10);
      if (with_aborts && random.one_in(4)) job.abort_at = random.pick(0, 40);
      workload.jobs.push_back(std::move(job));
    }
  }
  return workload;
}

// What a sequence gets when it is alone, by the rules as SamplingParams states them.
Result expected_result(const Job& job, int64_t max_model_len) {
  const Request& request = *job.request;
  const SamplingParams& params = request.params;
  Result result;
  std::vector<int32_t> token_ids = request.prompt_token_ids;
  if (params.prompt_logprobs)
    result.prompt_logprob_ids.assign(token_ids.begin() + 1, token_ids.end());
  while (!result.end && !result.ended_from_outside) {
    const int32_t token = mock_next_token(token_ids, request.seed, job.index, kVocabSize);
    token_ids.push_back(token);
    result.token_ids.push_back(token);
    const int64_t count = std::ssize(result.token_ids);
    const bool may_stop = count >= params.min_tokens;
    if (may_stop && !params.ignore_eos && (token == kEosIds[0] || token == kEosIds[1])) {
      result.end = SequenceEnd{FinishReason::kStop, std::nullopt};
    } else if (may_stop && !params.stop_token_ids.empty() && token == params.stop_token_ids[0]) {
      result.end = SequenceEnd{FinishReason::kStop, token};
    } else if (std::ssize(token_ids) == max_model_len || count == params.max_tokens) {
      result.end = SequenceEnd{FinishReason::kLength, std::nullopt};
    } else if (count == job.finish_after) {
      result.ended_from_outside = true;
    }
  }
  return result;
}

SchedulerConfig random_config(Random& random, int64_t max_model_len) {
  SchedulerConfig config;
  config.max_model_len = max_model_len;
  config.max_num_batched_tokens = random.one_in(2) ? random.pick(1, 12) : random.pick(12, 200);
  config.max_num_seqs = random.pick(1, 10);
  config.block_size = static_cast<int>(random.pick(1, 8));
  // Often just enough for one sequence, so that preemption is the rule.
  config.num_blocks = (max_model_len + config.block_size - 1) / config.block_size +
                      (random.one_in(2) ? random.pick(0, 6) : random.pick(0, 60));
  config.enable_prefix_caching = !random.one_in(3);
  config.eos_token_ids = kEosIds;
  return config;
}

// What a test's drafts are, if there are any: up to four for a sequence, some made by the runner
// and some guessed from what is known, of which some are wrong.
class Drafter {
 public:
  explicit Drafter(uint64_t seed) : random_(seed) {}

  std::vector<int32_t> draft(const Job& job, const std::vector<int32_t>& output) {
    std::vector<int32_t> token_ids = job.request->prompt_token_ids;
    token_ids.insert(token_ids.end(), output.begin(), output.end());
    std::vector<int32_t> drafts;
    for (int64_t i = random_.pick(0, 4); i > 0; --i) {
      token_ids.push_back(mock_next_token(token_ids, job.request->seed, job.index, kVocabSize));
      const bool wrong = random_.one_in(5);
      const auto guess =
          wrong ? static_cast<int32_t>(random_.pick(0, kVocabSize - 1)) : token_ids.back();
      drafts.push_back(random_.one_in(2) ? kDraftOfRunner : guess);
    }
    return drafts;
  }

 private:
  Random random_;
};

// The engine's loop, with `depth` steps in flight while the next is scheduled.
class Simulation {
 public:
  // Without a drafter, a step brings one token of a sequence.
  Simulation(const Workload& workload, const SchedulerConfig& config, int64_t max_prefill_tokens,
             size_t depth, std::optional<Drafter> drafter)
      : workload_(workload),
        config_(config),
        max_prefill_tokens_(max_prefill_tokens),
        depth_(depth),
        drafter_(std::move(drafter)),
        scheduler_(config),
        runner_(config.num_blocks, config.block_size, kVocabSize, config.max_model_len) {}

  std::map<SequenceId, Result> run() {
    int64_t num_tokens = 0;
    for (const Job& job : workload_.jobs) {
      num_tokens += job.request->num_prompt_tokens() + config_.max_model_len;
    }
    // Every step computes a token of the sequence that arrived first, which is never preempted.
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

 private:
  void step() {
    for (const Job& job : workload_.jobs) {
      if (job.arrival == iteration_) {
        runner_.set_salt(job.id, job.request->cache_salt);
        scheduler_.add(Sequence(job.id, job.request, job.index));
        results_[job.id];
        ++num_added_;
      }
      if (job.abort_at == iteration_) abort(job.id);
    }
    if (drafter_) propose();
    const ScheduledBatch batch = scheduler_.schedule(max_prefill_tokens_);
    scheduler_.check_integrity();
    verify(batch);
    if (!batch.empty() || !batch.removed.empty()) {
      // Every other batch as a rank in another process gets it.
      StepOutput output =
          runner_.run(iteration_ % 2 == 0 ? batch : decode_batch(encode_batch(batch)));
      if (!batch.empty()) outputs_.push_back(std::move(output));
    }
    const bool stuck = batch.empty() && outputs_.empty() && scheduler_.has_unfinished();
    EXPECT_FALSE(stuck) << "nothing runs and nothing is awaited";
    while (outputs_.size() > (batch.empty() ? 0 : depth_)) process();
  }

  void propose() {
    for (const auto& [id, result] : results_) {
      scheduler_.propose(id, drafter_->draft(workload_.jobs[id], result.token_ids));
    }
  }

  void abort(SequenceId id) {
    // Before it arrives, after it ended, and twice: without effect.
    scheduler_.abort(id);
    scheduler_.check_integrity();
    const auto it = results_.find(id);
    if (it == results_.end()) return;
    if (!it->second.end && !it->second.ended_from_outside) it->second.aborted = true;
  }

  void process() {
    const auto updates = scheduler_.process(std::move(outputs_.front()));
    outputs_.pop_front();
    scheduler_.check_integrity();
    for (const SequenceUpdate& update : updates) {
      Result& result = results_.at(update.id);
      const Job& job = workload_.jobs[update.id];
      EXPECT_FALSE(result.end || result.ended_from_outside || result.aborted)
          << "an update after the end of " << update.id;
      verify_cached(job, update.num_cached_tokens);
      for (const TokenLogprobs& logprobs : update.prompt_logprobs) {
        result.prompt_logprob_ids.push_back(logprobs.token_ids.at(0));
      }
      take_tokens(job, update, result);
    }
  }

  void take_tokens(const Job& job, const SequenceUpdate& update, Result& result) {
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

  void verify(const ScheduledBatch& batch) {
    EXPECT_LE(batch.num_tokens, config_.max_num_batched_tokens);
    EXPECT_LE(std::ssize(batch.sequences), config_.max_num_seqs);
    int64_t num_tokens = 0;
    int64_t num_prefill_tokens = 0;
    for (const ScheduledSequence& chunk : batch.sequences) {
      num_tokens += chunk.num_tokens;
      if (chunk.kind == ChunkKind::kPrefill) num_prefill_tokens += chunk.num_tokens;
      EXPECT_EQ(std::ranges::count(batch.removed, chunk.id), 0);
    }
    const auto place = [](const ScheduledSequence& chunk) {
      return chunk.kind == ChunkKind::kDecode ? 0 : chunk.kind == ChunkKind::kVerify ? 1 : 2;
    };
    EXPECT_TRUE(std::ranges::is_sorted(batch.sequences, {}, place)) << "decodes come first";
    EXPECT_EQ(num_tokens, batch.num_tokens);
    EXPECT_LE(num_prefill_tokens, max_prefill_tokens_);
    for (const NewSequence& added : batch.added) {
      if (num_first_runs_[added.id]++ > 0) continue;
      EXPECT_GE(added.id, last_first_run_) << "overtaken";
      last_first_run_ = added.id;
    }
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
  Scheduler scheduler_;
  MockRunner runner_;
  std::deque<StepOutput> outputs_;
  std::map<SequenceId, Result> results_;
  std::map<SequenceId, int> num_first_runs_;
  SequenceId last_first_run_ = 0;
  size_t num_added_ = 0;
  int64_t iteration_ = 0;
};

void expect_prefix(const Result& result, const Result& expected) {
  EXPECT_LE(result.token_ids.size(), expected.token_ids.size());
  EXPECT_TRUE(
      std::equal(result.token_ids.begin(), result.token_ids.end(), expected.token_ids.begin()));
}

void run_random_workloads(uint64_t first_seed, int count, size_t depth, bool with_aborts,
                          bool with_drafts = false) {
  int64_t num_preemptions = 0;
  int64_t num_hit_tokens = 0;
  int64_t num_kept_drafts = 0;
  int64_t num_rejected_drafts = 0;
  for (uint64_t seed = first_seed; seed < first_seed + static_cast<uint64_t>(count); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Workload workload = random_workload(random, with_aborts);
    const SchedulerConfig config = random_config(random, workload.max_model_len);
    const int64_t max_prefill_tokens =
        random.one_in(2) ? std::numeric_limits<int64_t>::max() : random.pick(1, 60);
    Simulation simulation(workload, config, max_prefill_tokens, depth,
                          with_drafts ? std::optional(Drafter(seed)) : std::nullopt);
    const auto results = simulation.run();
    ASSERT_EQ(results.size(), workload.jobs.size());
    for (const Job& job : workload.jobs) {
      SCOPED_TRACE("sequence " + std::to_string(job.id));
      const Result expected = expected_result(job, workload.max_model_len);
      const Result& result = results.at(job.id);
      if (result.aborted) {
        expect_prefix(result, expected);
      } else {
        EXPECT_TRUE(result == expected);
      }
    }
    if (::testing::Test::HasFailure()) return;
    num_preemptions += simulation.stats().num_preemptions;
    num_hit_tokens += simulation.stats().prefix_cache_hit_tokens;
    num_kept_drafts += simulation.runner().num_kept_drafts();
    num_rejected_drafts += simulation.runner().num_rejected_drafts();
  }
  // The workloads are such that they test something.
  EXPECT_GT(num_preemptions, count / 2);
  EXPECT_GT(num_hit_tokens, count);
  EXPECT_EQ(num_kept_drafts > 3 * count, with_drafts) << num_kept_drafts;
  EXPECT_EQ(num_rejected_drafts > 3 * count, with_drafts) << num_rejected_drafts;
}

constexpr int kNumWorkloads = 2000;

TEST(SchedulerPropertyTest, ResultsAtOnce) {
  run_random_workloads(1, kNumWorkloads, 0, false);
}
TEST(SchedulerPropertyTest, OneStepInFlight) {
  run_random_workloads(100'000, kNumWorkloads, 1, false);
}
TEST(SchedulerPropertyTest, ThreeStepsInFlight) {
  run_random_workloads(200'000, kNumWorkloads, 3, false);
}
TEST(SchedulerPropertyTest, AbortsWithResultsAtOnce) {
  run_random_workloads(300'000, kNumWorkloads, 0, true);
}
TEST(SchedulerPropertyTest, AbortsWithOneStepInFlight) {
  run_random_workloads(400'000, kNumWorkloads, 1, true);
}
TEST(SchedulerPropertyTest, AbortsWithThreeStepsInFlight) {
  run_random_workloads(500'000, kNumWorkloads, 3, true);
}

// What a sequence gets, one to five tokens a step, is what it gets one a step.
TEST(SchedulerPropertyTest, SeveralTokensAStepAtOnce) {
  run_random_workloads(600'000, kNumWorkloads, 0, false, true);
}
TEST(SchedulerPropertyTest, SeveralTokensAStepWithOneInFlight) {
  run_random_workloads(700'000, kNumWorkloads, 1, false, true);
}
TEST(SchedulerPropertyTest, SeveralTokensAStepWithThreeInFlight) {
  run_random_workloads(800'000, kNumWorkloads, 3, false, true);
}
TEST(SchedulerPropertyTest, SeveralTokensAStepWithAborts) {
  run_random_workloads(900'000, kNumWorkloads, 1, true, true);
}

}  // namespace
}  // namespace quire
