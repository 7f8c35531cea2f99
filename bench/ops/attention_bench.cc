// Paged attention with Qwen3-0.6B's heads (16 queries, 8 keys and values of 128): decode of one
// stream and of several, and prefill.
#include <algorithm>
#include <numeric>

#include "base/ceil_div.h"
#include "core/buffer.h"
#include "op_bench_util.h"
#include "ops/attention.h"

namespace quire::bench {
namespace {

constexpr int kHeads = 16;
constexpr int kKvHeads = 8;
constexpr int kHeadDim = 128;
constexpr int kBlockSize = 16;

// `seqs` sequences of `context` tokens, of which the last `queries` are computed.
void attention(benchmark::State& state, DType dtype) {
  const int64_t seqs = state.range(0);
  const int64_t queries = state.range(1);
  const int64_t context = state.range(2);
  Machine machine(dtype);
  KvCacheView cache;
  cache.dtype = dtype;
  cache.block_size = kBlockSize;
  cache.num_kv_heads = kKvHeads;
  cache.head_dim = kHeadDim;
  const int64_t blocks_per_seq = ceil_div(context, kBlockSize);
  cache.num_blocks = seqs * blocks_per_seq;
  const size_t cache_bytes = cache.block_bytes() * static_cast<size_t>(cache.num_blocks);
  const Buffer keys(cache_bytes);
  const Buffer values(cache_bytes);
  const std::vector<float> random = random_values(1 << 16);
  for (const Buffer* buffer : {&keys, &values}) {
    for (size_t i = 0; i < cache_bytes / size_of(dtype); ++i) {
      const float value = random[i % random.size()];
      if (dtype == DType::kBFloat16) {
        reinterpret_cast<BFloat16*>(buffer->data())[i] = BFloat16(value);
      } else {
        reinterpret_cast<float*>(buffer->data())[i] = value;
      }
    }
  }
  cache.keys = keys.data();
  cache.values = values.data();

  const int64_t tokens = seqs * queries;
  std::vector<int32_t> query_start(static_cast<size_t>(seqs) + 1);
  for (size_t i = 0; i < query_start.size(); ++i) {
    query_start[i] = static_cast<int32_t>(static_cast<int64_t>(i) * queries);
  }
  std::vector<int32_t> context_lens(static_cast<size_t>(seqs), static_cast<int32_t>(context));
  std::vector<int32_t> block_tables(static_cast<size_t>(cache.num_blocks));
  std::iota(block_tables.begin(), block_tables.end(), 0);
  std::shuffle(block_tables.begin(), block_tables.end(), std::mt19937(2));
  ForwardBatch batch;
  batch.num_tokens = tokens;
  batch.num_seqs = seqs;
  batch.max_query_len = queries;
  batch.max_context_len = context;
  batch.query_start = Tensor(query_start.data(), DType::kInt32, {seqs + 1});
  batch.context_lens = Tensor(context_lens.data(), DType::kInt32, {seqs});
  batch.block_tables = Tensor(block_tables.data(), DType::kInt32, {seqs, blocks_per_seq});
  std::vector<float> q = random_values(tokens * kHeads * kHeadDim);
  std::vector<float> out(q.size());
  const Tensor q_tensor(q.data(), DType::kFloat32, {tokens, kHeads * kHeadDim});
  const Tensor out_tensor(out.data(), DType::kFloat32, {tokens, kHeads * kHeadDim});
  for (auto _ : state) {
    ops::paged_attention(machine.stream, q_tensor, kHeads, 0.088f, 0, batch, cache, out_tensor);
    benchmark::DoNotOptimize(out.data());
  }
  // Each query sees the keys up to its own position.
  const double seen = static_cast<double>(context) - 0.5 * static_cast<double>(queries - 1);
  report(state, machine, 2.0 * static_cast<double>(cache_bytes),
         4.0 * static_cast<double>(tokens) * kHeads * kHeadDim * seen);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->Args({1, 1, 4096});
  bench->Args({64, 1, 1024});
  bench->Args({1, 512, 512});
  bench->Args({1, 512, 4096});
  bench->ArgNames({"seqs", "queries", "context"})->UseRealTime();
}

BENCHMARK_CAPTURE(attention, bf16, DType::kBFloat16)->Apply(shapes);
BENCHMARK_CAPTURE(attention, f32, DType::kFloat32)->Apply(shapes);

}  // namespace
}  // namespace quire::bench
