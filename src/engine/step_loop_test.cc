// The engine's loop by hand, a scheduler and the ranks, so that a test comes between the two:
// batches that go through bytes, and drafts right and wrong, bring the tokens of steps without.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "engine/engine_setup.h"
#include "engine/test_models.h"
#include "loader/checkpoint.h"
#include "request/batch_encoding.h"
#include "runner/thread_executor.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

using Requests = std::vector<std::shared_ptr<const Request>>;

struct Result {
  std::vector<int32_t> token_ids;
  std::vector<float> logprobs;  // of each token, with those of the best
  bool operator==(const Result&) const = default;
};

EngineConfig small_config(int tensor_parallel_size) {
  EngineConfig config;
  config.model = (engine_test::golden_models() / "qwen3-tied").string();
  config.skip_tokenizer_init = true;
  config.max_model_len = 96;
  config.threads = tensor_parallel_size;
  config.tensor_parallel_size = tensor_parallel_size;
  config.max_num_batched_tokens = 24;  // prompts come in chunks
  config.num_gpu_blocks_override = 9;  // sequences are preempted
  return config;
}

// Requests of every kind; two of them share the first blocks of their prompts.
Requests mixed_requests() {
  Requests requests;
  for (int i = 0; i < 6; ++i) {
    Request request;
    request.number = static_cast<uint64_t>(i);
    for (int32_t j = 0; j < 5 + 9 * i; ++j)
      request.prompt_token_ids.push_back((3 * j + i / 2) % 90);
    request.params.max_tokens = 20;
    request.params.ignore_eos = true;
    request.params.temperature = i % 2 == 0 ? 0 : 0.9;
    if (i >= 2) request.params.logprobs = 2;
    if (i == 3) request.params.repetition_penalty = 1.3;
    if (i == 4) request.params.logit_bias = {{7, 4.0f}};
    if (i == 5) request.params.prompt_logprobs = 1;
    request.seed = static_cast<uint64_t>(100 + i);
    requests.push_back(std::make_shared<const Request>(std::move(request)));
  }
  return requests;
}

void take(const std::vector<SequenceUpdate>& updates, std::map<SequenceId, Result>& results) {
  for (const SequenceUpdate& update : updates) {
    Result& result = results[update.id];
    result.token_ids.insert(result.token_ids.end(), update.token_ids.begin(),
                            update.token_ids.end());
    for (const TokenLogprobs& position : update.logprobs) {
      result.logprobs.insert(result.logprobs.end(), position.logprobs.begin(),
                             position.logprobs.end());
    }
  }
}

using Submit = std::function<void(Executor&, ScheduledBatch)>;

void submit_itself(Executor& executor, ScheduledBatch batch) {
  executor.submit(std::make_shared<const ScheduledBatch>(std::move(batch)));
}

void submit_decoded(Executor& executor, ScheduledBatch batch) {
  submit_itself(executor, decode_batch(encode_batch(batch)));
}

// Called before each step with what has come of each sequence so far.
using Propose = std::function<void(Scheduler&, const std::map<SequenceId, Result>&)>;

void propose_nothing(Scheduler&, const std::map<SequenceId, Result>&) {}

struct LoopRun {
  std::map<SequenceId, Result> results;
  int64_t num_steps = 0;
};

// Runs all requests to their ends, with up to `depth` steps in flight while the next is scheduled.
LoopRun run(const EngineConfig& config, const Requests& requests, const Submit& submit,
            std::shared_ptr<const LogitsProcessorRegistry> processors = nullptr,
            const Propose& propose = propose_nothing, size_t depth = 1) {
  EngineSetup setup = set_up_engine(config);
  setup.executor.runner.logits_processors = std::move(processors);
  const Checkpoint checkpoint = Checkpoint::open(setup.folder);
  const std::unique_ptr<Executor> executor = make_thread_executor(setup.executor, &checkpoint);
  Scheduler scheduler(setup.scheduler);
  SequenceId next_id = 0;
  for (const auto& request : requests) scheduler.add(Sequence(next_id++, request, 0));
  LoopRun run;
  size_t in_flight = 0;
  while (scheduler.has_unfinished() || in_flight > 0) {
    propose(scheduler, run.results);
    ScheduledBatch batch = scheduler.schedule();
    const bool submits = !batch.empty() || !batch.removed.empty();
    if (submits) submit(*executor, std::move(batch));
    if (submits && ++in_flight <= depth) continue;
    --in_flight;
    ++run.num_steps;
    StepOutput output = executor->wait();
    if (output.sequences.empty()) continue;  // it only removed sequences
    take(scheduler.process(std::move(output)), run.results);
  }
  return run;
}

// A drafter that was told what the sequences will get, and is wrong one time in three.
Propose prophet(std::map<SequenceId, Result> future, size_t num_drafts) {
  return [future = std::move(future), num_drafts, random = std::mt19937(7)](
             Scheduler& scheduler, const std::map<SequenceId, Result>& now) mutable {
    for (const auto& [id, result] : future) {
      const auto found = now.find(id);
      const size_t begin = found == now.end() ? 0 : found->second.token_ids.size();
      std::vector<int32_t> drafts;
      for (size_t i = begin; i < result.token_ids.size() && drafts.size() < num_drafts; ++i) {
        drafts.push_back(random() % 3 == 0 ? 1 : result.token_ids[i]);
      }
      scheduler.propose(id, std::move(drafts));
    }
  };
}

TEST(StepLoop, BatchesThatWereBytesBringTheSameTokens) {
  for (const int ranks : {1, 2}) {
    const EngineConfig config = small_config(ranks);
    const auto expected = run(config, mixed_requests(), submit_itself).results;
    ASSERT_EQ(expected.size(), 6u);
    for (const auto& [id, result] : expected) EXPECT_EQ(result.token_ids.size(), 20u) << id;
    const auto decoded = run(config, mixed_requests(), submit_decoded).results;
    EXPECT_EQ(decoded, expected) << ranks << " ranks";
  }
}

TEST(StepLoop, CallbacksAreFoundByTheirRequest) {
  const auto registry = std::make_shared<LogitsProcessorRegistry>();
  registry->add(7, {[](std::span<const int32_t> ids, std::span<float> logits) {
                  std::fill(logits.begin(), logits.end(), -100.0f);
                  logits[ids.size()] = 0.0f;
                }});
  Request request;
  request.number = 7;
  request.prompt_token_ids = {1, 2};
  request.params.max_tokens = 3;
  request.params.ignore_eos = true;
  request.has_logits_processors = true;
  const Requests requests = {std::make_shared<const Request>(request)};
  const auto results = run(small_config(2), requests, submit_decoded, registry).results;
  EXPECT_EQ(results.at(0).token_ids, (std::vector<int32_t>{2, 3, 4}));
}

TEST(StepLoop, DraftsChangeTheNumberOfStepsAndNothingElse) {
  for (const int ranks : {1, 2}) {
    const EngineConfig config = small_config(ranks);
    const LoopRun plain = run(config, mixed_requests(), submit_itself);
    for (const size_t num_drafts : {1, 4}) {
      for (const size_t depth : {0, 1}) {
        const LoopRun drafted = run(config, mixed_requests(), submit_decoded, nullptr,
                                    prophet(plain.results, num_drafts), depth);
        EXPECT_EQ(drafted.results, plain.results) << ranks << ' ' << num_drafts << ' ' << depth;
        if (depth == 0) {
          EXPECT_LT(drafted.num_steps, plain.num_steps);
        }
      }
    }
  }
}

// Asks a draft model for up to four drafts of about every third sequence, so that it lags behind.
Propose now_and_then(uint32_t seed) {
  return [random = std::mt19937(seed)](Scheduler& scheduler,
                                       const std::map<SequenceId, Result>& now) mutable {
    for (const auto& [id, result] : now) {
      if (random() % 3 != 0) continue;
      scheduler.propose(id, std::vector<int32_t>(1 + random() % 4, kDraftOfRunner));
    }
  };
}

// What was handed to the ranks.
struct Submitted {
  size_t num_tokens = 0;  // that steps bring if all drafts are kept
  size_t num_drafts = 0;
};

// Has the draft model read the prompts of every other step.
Submit reading_now_and_then(Submitted& submitted) {
  return [&submitted](Executor& executor, ScheduledBatch batch) {
    batch.drafter_reads_prompts = batch.step % 2 == 0;
    for (const ScheduledSequence& chunk : batch.sequences) {
      submitted.num_tokens += static_cast<size_t>(chunk.num_logits_rows());
      submitted.num_drafts += chunk.draft_token_ids.size();
    }
    submit_decoded(executor, std::move(batch));
  };
}

EngineConfig drafted_by(const std::string& model, EngineConfig config) {
  config.speculative_config.emplace().method = "draft_model";
  config.speculative_config->model = (engine_test::golden_models() / model).string();
  return config;
}

TEST(StepLoop, ADraftModelThatRunsNowAndThenChangesTheNumberOfStepsAndNothingElse) {
  for (const int ranks : {1, 2}) {
    const LoopRun plain = run(small_config(ranks), mixed_requests(), submit_itself);
    const EngineConfig config = drafted_by("qwen2-tied", small_config(ranks));
    for (const size_t depth : {0, 1}) {
      Submitted submitted;
      const LoopRun drafted = run(config, mixed_requests(), reading_now_and_then(submitted),
                                  nullptr, now_and_then(5), depth);
      EXPECT_EQ(drafted.results, plain.results) << ranks << ' ' << depth;
      EXPECT_GT(submitted.num_drafts, 0u);
    }
  }
}

// Also where it has to catch up: on prompts, on tokens that came while it did not run, on prefixes
// that another sequence has read, and after a preemption.
TEST(StepLoop, ADraftModelThatIsTheModelItselfIsRightWheneverItRuns) {
  for (const int ranks : {1, 2}) {
    const EngineConfig config = drafted_by("qwen3-tied", small_config(ranks));
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      Submitted submitted;
      const LoopRun drafted = run(config, mixed_requests(), reading_now_and_then(submitted),
                                  nullptr, now_and_then(seed), 0);
      size_t num_tokens = 0;
      for (const auto& [id, result] : drafted.results) num_tokens += result.token_ids.size();
      EXPECT_EQ(submitted.num_tokens, num_tokens) << ranks << ' ' << seed;
      EXPECT_GT(submitted.num_drafts, 0u);
    }
  }
}

// Callbacks see the drafts before a row as the tokens that they then are.
TEST(StepLoop, CallbacksAreCalledForEachTokenOfAStep) {
  const auto registry = std::make_shared<LogitsProcessorRegistry>();
  registry->add(7, {[](std::span<const int32_t> ids, std::span<float> logits) {
                  std::fill(logits.begin(), logits.end(), -100.0f);
                  logits[(static_cast<size_t>(ids.back()) + ids.size()) % 50] = 0.0f;
                }});
  Request request;
  request.number = 7;
  request.prompt_token_ids = {1, 2};
  request.params.max_tokens = 12;
  request.has_logits_processors = true;
  const Requests requests = {std::make_shared<const Request>(request)};
  const LoopRun plain = run(small_config(1), requests, submit_itself, registry);
  ASSERT_EQ(plain.results.at(0).token_ids.size(), 12u);
  const LoopRun drafted =
      run(small_config(1), requests, submit_itself, registry, prophet(plain.results, 3), 0);
  EXPECT_EQ(drafted.results, plain.results);
  EXPECT_LT(drafted.num_steps, plain.num_steps);
}

}  // namespace
}  // namespace quire
