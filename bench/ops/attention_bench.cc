// Paged attention with Qwen3-0.6B's heads (16 queries, 8 keys and values of 128), or with one of
// keys and values for all: decode of one stream and of several, and prefill.
#include <algorithm>
#include <numeric>

#include "base/ceil_div.h"
#include "core/buffer.h"
#include "op_bench_util.h"
#include "ops/attention.h"

namespace quire::bench {
namespace {

constexpr int kHeads = 16;
constexpr int kHeadDim = 128;
constexpr int kBlockSize = 16;
constexpr size_t kLeastBytes = size_t{256} << 20;

void fill(const KvCacheView& cache, void* memory) {
  const std::vector<float> random = random_values(1 << 16);
  const size_t bytes = cache.block_bytes() * static_cast<size_t>(cache.num_blocks);
  for (size_t i = 0; i < bytes / size_of(cache.dtype); ++i) {
    const float value = random[i % random.size()];
    switch (cache.dtype) {
      case DType::kBFloat16:
        static_cast<BFloat16*>(memory)[i] = BFloat16(value);
        break;
      case DType::kFloat8E4M3:
        static_cast<Float8E4M3*>(memory)[i] = Float8E4M3(value);
        break;
      case DType::kFloat8E5M2:
        static_cast<Float8E5M2*>(memory)[i] = Float8E5M2(value);
        break;
      case DType::kInt8:
        static_cast<int8_t*>(memory)[i] = static_cast<int8_t>(value * 127);
        break;
      default:
        static_cast<float*>(memory)[i] = value;
    }
  }
  if (cache.dtype != DType::kInt8) return;
  // Each head's scales follow its elements.
  const size_t elements = static_cast<size_t>(cache.block_size) * kHeadDim;
  for (size_t head = 0; head < bytes / cache.head_bytes(); ++head) {
    auto* scales = reinterpret_cast<float*>(static_cast<std::byte*>(memory) +
                                            head * cache.head_bytes() + elements);
    std::fill_n(scales, cache.block_size, 1.0f / 127);
  }
}

// `seqs` sequences with `context` tokens each. Computes the last `queries` tokens of each, with
// `kv_heads` heads of keys and values.
void attention(benchmark::State& state, DType dtype) {
  const int64_t seqs = state.range(0);
  const int64_t queries = state.range(1);
  const int64_t context = state.range(2);
  const auto kv_heads = static_cast<int>(state.range(3));
  // Keys and values of a byte are widened: the arithmetic is that of bfloat16.
  Machine machine(dtype == DType::kFloat32 ? dtype : DType::kBFloat16);
  KvCacheView cache;
  cache.dtype = dtype;
  cache.block_size = kBlockSize;
  cache.num_kv_heads = kv_heads;
  cache.head_dim = kHeadDim;
  const int64_t blocks_per_seq = ceil_div(context, kBlockSize);
  cache.num_blocks = seqs * blocks_per_seq;
  const size_t cache_bytes = cache.block_bytes() * static_cast<size_t>(cache.num_blocks);
  // As many layers as keep the last-level cache from holding them all.
  const size_t layers = ceil_div(kLeastBytes, 2 * cache_bytes);
  const Buffer keys(cache_bytes * layers);
  const Buffer values(cache_bytes * layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    fill(cache, keys.data() + layer * cache_bytes);
    fill(cache, values.data() + layer * cache_bytes);
  }

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
  size_t layer = 0;
  for (auto _ : state) {
    cache.keys = keys.data() + layer * cache_bytes;
    cache.values = values.data() + layer * cache_bytes;
    layer = (layer + 1) % layers;
    ops::paged_attention(machine.stream, q_tensor, kHeads, 0.088f, 0, batch, cache, out_tensor);
    benchmark::DoNotOptimize(out.data());
  }
  // Each query sees the keys up to its own position.
  const double seen = static_cast<double>(context) - 0.5 * static_cast<double>(queries - 1);
  report(state, machine, 2.0 * static_cast<double>(cache_bytes),
         4.0 * static_cast<double>(tokens) * kHeads * kHeadDim * seen);
}

void decode_shapes(benchmark::internal::Benchmark* bench) {
  bench->Args({1, 1, 1024, 8});
  bench->Args({1, 1, 4096, 8});
  bench->Args({1, 1, 8192, 8});
  bench->Args({1, 1, 8192, 1});
  bench->Args({64, 1, 1024, 8});
  bench->ArgNames({"seqs", "queries", "context", "kv_heads"})->UseRealTime();
}
void shapes(benchmark::internal::Benchmark* bench) {
  decode_shapes(bench);
  bench->Args({1, 512, 512, 8});
  bench->Args({1, 512, 4096, 8});
}

BENCHMARK_CAPTURE(attention, bf16, DType::kBFloat16)->Apply(shapes);
BENCHMARK_CAPTURE(attention, fp8, DType::kFloat8E4M3)->Apply(shapes);
BENCHMARK_CAPTURE(attention, fp8_e5m2, DType::kFloat8E5M2)->Apply(shapes);
BENCHMARK_CAPTURE(attention, int8, DType::kInt8)->Apply(shapes);
BENCHMARK_CAPTURE(attention, f32, DType::kFloat32)->Apply(decode_shapes);

}  // namespace
}  // namespace quire::bench
