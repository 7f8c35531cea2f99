// The engine's loop by hand, a scheduler and the ranks, so that a test comes between the two:
// batches that go through bytes bring the tokens of those that do not.
#include <gtest/gtest.h>

#include <functional>
#include <map>

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

// Requests of every kind, two of which share a prompt of some blocks.
Requests mixed_requests() {
  Requests requests;
  for (int i = 0; i < 6; ++i) {
    Request request;
    request.id = std::to_string(i);
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

using Submit = std::function<void(Executor&, ScheduledBatch)>;

void submit_itself(Executor& executor, ScheduledBatch batch) {
  executor.submit(std::make_shared<const ScheduledBatch>(std::move(batch)));
}

void submit_decoded(Executor& executor, ScheduledBatch batch) {
  submit_itself(executor, decode_batch(encode_batch(batch)));
}

// Runs all requests to their ends, with a step in flight while the next is scheduled.
std::map<SequenceId, Result> run(
    const EngineConfig& config, const Requests& requests, const Submit& submit,
    std::shared_ptr<const LogitsProcessorRegistry> processors = nullptr) {
  EngineSetup setup = set_up_engine(config);
  setup.executor.runner.logits_processors = std::move(processors);
  const Checkpoint checkpoint = Checkpoint::open(setup.folder);
  const std::unique_ptr<Executor> executor = make_thread_executor(setup.executor, &checkpoint);
  Scheduler scheduler(setup.scheduler);
  SequenceId next_id = 0;
  for (const auto& request : requests) scheduler.add(Sequence(next_id++, request, 0));
  std::map<SequenceId, Result> results;
  size_t in_flight = 0;
  while (scheduler.has_unfinished() || in_flight > 0) {
    ScheduledBatch batch = scheduler.schedule();
    const bool submits = !batch.empty() || !batch.removed.empty();
    if (submits) submit(*executor, std::move(batch));
    if (submits && ++in_flight < 2) continue;
    --in_flight;
    const StepOutput output = executor->wait();
    if (output.sequences.empty()) continue;  // it only removed sequences
    for (const SequenceUpdate& update : scheduler.process(output)) {
      Result& result = results[update.id];
      if (!update.token_id) continue;
      result.token_ids.push_back(*update.token_id);
      result.logprobs.insert(result.logprobs.end(), update.logprobs.logprobs.begin(),
                             update.logprobs.logprobs.end());
    }
  }
  return results;
}

TEST(StepLoop, BatchesThatWereBytesBringTheSameTokens) {
  for (const int ranks : {1, 2}) {
    const EngineConfig config = small_config(ranks);
    const auto expected = run(config, mixed_requests(), submit_itself);
    ASSERT_EQ(expected.size(), 6u);
    for (const auto& [id, result] : expected) EXPECT_EQ(result.token_ids.size(), 20u) << id;
    EXPECT_EQ(run(config, mixed_requests(), submit_decoded), expected) << ranks << " ranks";
  }
}

TEST(StepLoop, CallbacksAreFoundByTheirRequest) {
  const auto registry = std::make_shared<LogitsProcessorRegistry>();
  registry->add("callback", {[](std::span<const int32_t> ids, std::span<float> logits) {
                  std::fill(logits.begin(), logits.end(), -100.0f);
                  logits[ids.size()] = 0.0f;
                }});
  Request request;
  request.id = "callback";
  request.prompt_token_ids = {1, 2};
  request.params.max_tokens = 3;
  request.params.ignore_eos = true;
  request.has_logits_processors = true;
  const Requests requests = {std::make_shared<const Request>(request)};
  const auto results = run(small_config(2), requests, submit_decoded, registry);
  EXPECT_EQ(results.at(0).token_ids, (std::vector<int32_t>{2, 3, 4}));
}

}  // namespace
}  // namespace quire
