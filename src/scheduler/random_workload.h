#pragma once
// Random work for the scheduler's property tests: configurations, requests of one client or of
// several, outside events that end them, drafts; and the result that each sequence must get under
// any schedule. Thread safety: none needed; for one test's thread.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "request/scheduled_batch.h"
#include "scheduler/mock_runner.h"
#include "scheduler/scheduler.h"

namespace quire::scheduler_internal {

constexpr int32_t kMockVocabSize = 23;
constexpr int32_t kMockEosIds[] = {0, 1};

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

// A sequence, and what happens to it from outside.
struct Job {
  SequenceId id = 0;
  std::shared_ptr<const Request> request;
  uint32_t index = 0;
  int64_t arrival = 0;  // the iteration of the loop at which it is added
  // Ended from outside once that many tokens have come, as by a stop string.
  std::optional<int64_t> finish_after;
  std::optional<int64_t> abort_at;  // the iteration
};

// Of a sequence: what came, and how it ended.
struct JobResult {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> prompt_logprob_ids;
  std::optional<SequenceEnd> end;
  bool ended_from_outside = false;
  bool aborted = false;

  bool is_over() const { return end || ended_from_outside || aborted; }
  bool operator==(const JobResult& other) const {
    return token_ids == other.token_ids && prompt_logprob_ids == other.prompt_logprob_ids &&
           ended_from_outside == other.ended_from_outside && aborted == other.aborted &&
           end.has_value() == other.end.has_value() &&
           (!end ||
            (end->reason == other.end->reason && end->stop_token_id == other.end->stop_token_id));
  }
};

struct Workload {
  int64_t max_model_len = 0;
  std::vector<Job> jobs;  // by their ids, which count from 0
};

struct WorkloadOptions {
  bool with_aborts = false;
  // Above 1: that many clients, with weights, and priorities.
  int64_t num_clients = 1;
  int64_t num_loras = 0;  // adapters that requests have, or none
};

inline std::vector<int32_t> random_tokens(Random& random, int64_t count) {
  std::vector<int32_t> token_ids(static_cast<size_t>(count));
  for (int32_t& id : token_ids) id = static_cast<int32_t>(random.pick(0, kMockVocabSize - 1));
  return token_ids;
}

inline SamplingParams random_params(Random& random) {
  SamplingParams params;
  params.max_tokens = random.one_in(8) ? std::nullopt : std::optional(random.pick(1, 40));
  params.min_tokens = random.pick(0, params.max_tokens.value_or(5));
  params.ignore_eos = random.one_in(2);
  if (random.one_in(4)) params.stop_token_ids = {5};
  if (random.one_in(6)) params.prompt_logprobs = 0;
  if (random.one_in(6)) params.logprobs = 1;
  return params;
}

inline int32_t random_weight(Random& random) {
  constexpr int32_t kWeights[] = {1, 50, kDefaultClientWeight, 300, kMaxClientWeight};
  return random.one_in(2) ? kDefaultClientWeight : kWeights[random.pick(0, 4)];
}

// Adds the sequences of a request, n of them.
inline void add_jobs(Workload& workload, Request facts, int64_t n, int64_t arrival) {
  const auto request = std::make_shared<const Request>(std::move(facts));
  for (int64_t index = 0; index < n; ++index) {
    Job job;
    job.id = workload.jobs.size();
    job.request = request;
    job.index = static_cast<uint32_t>(index);
    job.arrival = arrival;
    workload.jobs.push_back(std::move(job));
  }
}

// A few requests, some with a beginning in common, for a model of random length.
inline Workload random_workload(Random& random, const WorkloadOptions& options) {
  Workload workload;
  workload.max_model_len = random.pick(8, 80);
  std::vector<std::vector<int32_t>> stems;
  for (int i = 0; i < 3; ++i) {
    stems.push_back(random_tokens(random, random.pick(0, workload.max_model_len - 1)));
  }
  std::vector<int32_t> weights;
  for (int64_t i = 0; i < options.num_clients; ++i) weights.push_back(random_weight(random));
  int64_t arrival = 0;
  const int64_t num_requests = random.pick(1, 7) * (options.num_clients > 1 ? 2 : 1);
  for (int64_t number = 0; number < num_requests; ++number) {
    Request facts;
    facts.number = static_cast<uint64_t>(number);
    facts.prompt_token_ids = stems[static_cast<size_t>(random.pick(0, 2))];
    for (const int32_t id : random_tokens(random, random.pick(0, 6))) {
      facts.prompt_token_ids.push_back(id);
    }
    facts.prompt_token_ids.resize(static_cast<size_t>(
        std::clamp<int64_t>(std::ssize(facts.prompt_token_ids), 1, workload.max_model_len - 1)));
    if (random.one_in(2)) arrival += random.pick(0, 10);
    facts.params = random_params(random);
    facts.seed = static_cast<uint64_t>(random.pick(0, 3));
    facts.cache_salt = random.one_in(4) ? "salt" : "";
    facts.client = static_cast<uint64_t>(random.pick(0, options.num_clients - 1));
    facts.client_weight = weights[facts.client];
    if (options.num_clients > 1) facts.priority = random.pick(-1, 1);
    if (options.num_loras > 0) {
      facts.lora_id = static_cast<uint64_t>(random.pick(0, options.num_loras));
      facts.cache_salt += std::to_string(facts.lora_id);
    }
    add_jobs(workload, std::move(facts), random.one_in(3) ? random.pick(2, 4) : 1, arrival);
  }
  for (Job& job : workload.jobs) {
    if (random.one_in(8)) job.finish_after = random.pick(1, 10);
    if (options.with_aborts && random.one_in(4)) job.abort_at = random.pick(0, 40);
  }
  return workload;
}

// What a sequence gets if it runs by itself, by the rules of SamplingParams.
inline JobResult expected_result(const Job& job, int64_t max_model_len) {
  const Request& request = *job.request;
  const SamplingParams& params = request.params;
  JobResult result;
  std::vector<int32_t> token_ids = request.prompt_token_ids;
  if (params.prompt_logprobs) {
    result.prompt_logprob_ids.assign(token_ids.begin() + 1, token_ids.end());
  }
  while (!result.is_over()) {
    const int32_t token = mock_next_token(token_ids, request.seed, job.index, kMockVocabSize);
    token_ids.push_back(token);
    result.token_ids.push_back(token);
    const int64_t count = std::ssize(result.token_ids);
    const bool may_stop = count >= params.min_tokens;
    if (may_stop && !params.ignore_eos && std::ranges::count(kMockEosIds, token) > 0) {
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

inline SchedulerConfig random_config(Random& random, int64_t max_model_len) {
  SchedulerConfig config;
  config.max_model_len = max_model_len;
  config.max_num_batched_tokens = random.one_in(2) ? random.pick(1, 12) : random.pick(12, 200);
  config.max_num_seqs = random.pick(1, 10);
  config.block_size = static_cast<int>(random.pick(1, 8));
  // Often just enough for one sequence, so that preemption is the rule.
  config.num_blocks = (max_model_len + config.block_size - 1) / config.block_size +
                      (random.one_in(2) ? random.pick(0, 6) : random.pick(0, 60));
  config.enable_prefix_caching = !random.one_in(3);
  config.eos_token_ids.assign(std::begin(kMockEosIds), std::end(kMockEosIds));
  return config;
}

// A test's drafts, if it has any: up to four for a sequence, some made by the runner and some
// guessed from what is known, some of them wrong.
class Drafter {
 public:
  explicit Drafter(uint64_t seed) : random_(seed) {}

  std::vector<int32_t> draft(const Job& job, const std::vector<int32_t>& output) {
    std::vector<int32_t> token_ids = job.request->prompt_token_ids;
    token_ids.insert(token_ids.end(), output.begin(), output.end());
    std::vector<int32_t> drafts;
    for (int64_t i = random_.pick(0, 4); i > 0; --i) {
      token_ids.push_back(mock_next_token(token_ids, job.request->seed, job.index, kMockVocabSize));
      const bool wrong = random_.one_in(5);
      const auto guess =
          wrong ? static_cast<int32_t>(random_.pick(0, kMockVocabSize - 1)) : token_ids.back();
      drafts.push_back(random_.one_in(2) ? kDraftOfRunner : guess);
    }
    return drafts;
  }

 private:
  Random random_;
};

}  // namespace quire::scheduler_internal
