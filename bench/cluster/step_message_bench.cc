// Times what a decode step costs node 0 for another node: encoding the scheduled batch and sending
// it, encrypted, over this machine's loopback. `bytes` is what the step takes on the wire.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/node_group.h"
#include "request/batch_encoding.h"

namespace quire {
namespace {

// Sequences that decode, as they are after a few thousand others: one in 16 gets a KV block.
ScheduledBatch decode_step(int64_t num_sequences) {
  ScheduledBatch batch;
  batch.step = 1'000'000;
  for (int64_t i = 0; i < num_sequences; ++i) {
    ScheduledSequence& chunk = batch.sequences.emplace_back();
    chunk.id = static_cast<SequenceId>(5000 + 3 * i);
    chunk.kind = ChunkKind::kDecode;
    chunk.num_computed_tokens = 1000 + i;
    chunk.num_tokens = 1;
    chunk.samples = true;
    if (i % 16 == 0) chunk.new_block_ids = {static_cast<int32_t>(40'000 + 17 * i)};
  }
  batch.num_tokens = num_sequences;
  return batch;
}

void BM_StepToAnotherNode(benchmark::State& state) {
  std::promise<uint16_t> port;
  cluster::JoinOptions options;
  options.num_nodes = 2;
  options.address = "127.0.0.1";
  options.timeout_s = 60;
  options.secret = "a secret of benchmarks";
  options.node_of_rank = {0, 1};
  std::thread other([options, &port]() mutable {
    options.node = 1;
    options.port = port.get_future().get();
    const auto group = cluster::NodeGroup::join(options);
    while (group->next_batch()) {
    }
  });
  {
    const auto group =
        cluster::NodeGroup::join(options, [&port](uint16_t bound) { port.set_value(bound); });
    const ScheduledBatch batch = decode_step(state.range(0));
    const uint64_t before = group->bytes_sent();
    for (auto _ : state) group->send_batch(encode_batch(batch));
    state.counters["bytes"] = benchmark::Counter(static_cast<double>(group->bytes_sent() - before),
                                                 benchmark::Counter::kAvgIterations);
    group->end();
  }
  other.join();
}
BENCHMARK(BM_StepToAnotherNode)->Arg(16)->Arg(256)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire
