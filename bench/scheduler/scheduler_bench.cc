// Times Scheduler::schedule(): 1 to 256 sequences of 1 to 64 clients that decode, and the same with
// a queue of long prompts behind them. Each round adds nothing and ends nothing.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"

namespace quire {
namespace {

Sequence make_sequence(SequenceId id, uint64_t client, int64_t num_tokens) {
  Request request;
  request.number = id;
  request.client = client;
  request.prompt_token_ids.assign(static_cast<size_t>(num_tokens), static_cast<int32_t>(id));
  request.params.ignore_eos = true;
  request.params.max_tokens.reset();
  return {id, std::make_shared<const Request>(std::move(request)), 0};
}

// Brings each chunk that samples a token.
void process(Scheduler& scheduler, const ScheduledBatch& batch) {
  StepOutput output;
  output.step = batch.step;
  for (const ScheduledSequence& chunk : batch.sequences) {
    SequenceOutput& sequence = output.sequences.emplace_back();
    sequence.id = chunk.id;
    if (chunk.samples) sequence.token_ids = {7};
  }
  scheduler.process(std::move(output));
}

SchedulerConfig roomy_config() {
  SchedulerConfig config;
  config.max_num_batched_tokens = 4096;
  config.max_num_seqs = 512;
  config.max_model_len = 1 << 20;
  config.num_blocks = 1 << 17;
  return config;
}

// Arguments: sequences that decode, clients that they belong to, long prompts that wait.
void BM_Schedule(benchmark::State& state) {
  Scheduler scheduler(roomy_config());
  SequenceId id = 1;
  const auto add = [&](int64_t num_sequences, int64_t num_tokens) {
    for (int64_t i = 0; i < num_sequences; ++i, ++id) {
      scheduler.add(make_sequence(id, static_cast<uint64_t>(i % state.range(1)), num_tokens));
    }
  };
  add(state.range(0), 16);
  process(scheduler, scheduler.schedule());
  add(state.range(2), 500'000);
  for (auto _ : state) {
    const ScheduledBatch batch = scheduler.schedule(state.range(2) > 0 ? 512 : 4096);
    state.PauseTiming();
    process(scheduler, batch);
    state.ResumeTiming();
  }
}

// Few enough that sequences and prompts do not end meanwhile.
BENCHMARK(BM_Schedule)
    ->ArgNames({"sequences", "clients", "prompts"})
    ->ArgsProduct({{1, 16, 256}, {1, 16, 64}, {0}})
    ->ArgsProduct({{16}, {1, 16, 64}, {64}})
    ->Iterations(700)
    ->Repetitions(15)
    ->ReportAggregatesOnly(true)
    ->ComputeStatistics("min", [](const std::vector<double>& times) {
      return *std::min_element(times.begin(), times.end());
    });

}  // namespace
}  // namespace quire
