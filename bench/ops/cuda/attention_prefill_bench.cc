// Attention of prompts over the paged cache: whole prompts, many of them, and chunks over a prefix.
// attention_prefill is what the engine runs on this device; flash_attention, what it runs where
// there is nothing better.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "base/ceil_div.h"
#include "bench.h"
#include "ops/cuda/attention/attention.cuh"
#include "ops/cuda/attention/prefill/prefill.cuh"

namespace quire::bench {
namespace {

struct Shape {
  std::string name;
  int64_t seqs, queries, context;
  int num_heads = 16;
  int num_kv_heads = 8;
  int head_dim = 128;
  int64_t window = 0;
  bool is_fp8 = false;
};

constexpr DType kDType = DType::kBFloat16;
constexpr int kBlockSize = 16;

// What one launch reads and writes.
struct Set {
  DeviceBuffer q, out, keys, values, block_tables;
};

double pairs_of(const Shape& shape) {
  double pairs = 0;
  for (int64_t i = 0; i < shape.queries; ++i) {
    const int64_t seen = shape.context - shape.queries + i + 1;
    pairs += static_cast<double>(shape.window > 0 ? std::min(seen, shape.window) : seen);
  }
  return pairs * static_cast<double>(shape.seqs);
}

void attention(CudaBench& bench, const Shape& shape) {
  const std::string name = "attention_prefill/" + shape.name;
  const std::string flash_name = "flash_attention/" + shape.name;
  if (!bench.wants(name) && !bench.wants(flash_name)) return;
  const int64_t tokens = shape.seqs * shape.queries;
  const int64_t blocks_per_seq = ceil_div(shape.context, kBlockSize);
  const int64_t blocks = shape.seqs * blocks_per_seq;
  const int64_t q_elements = tokens * shape.num_heads * shape.head_dim;
  const int64_t kv_elements = blocks * kBlockSize * shape.num_kv_heads * shape.head_dim;
  const DType cache_dtype = shape.is_fp8 ? DType::kFloat8E4M3 : kDType;

  Work work;
  work.flops = 4.0 * pairs_of(shape) * shape.num_heads * shape.head_dim;
  work.bytes = static_cast<double>(2 * q_elements) * static_cast<double>(size_of(kDType)) +
               static_cast<double>(2 * kv_elements) * static_cast<double>(size_of(cache_dtype));

  std::vector<int32_t> table(static_cast<size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  std::vector<Set> sets;
  std::mt19937 random(1);
  const int num_sets = bench.sets_for(work.bytes);
  for (int i = 0; i < num_sets; ++i) {
    std::shuffle(table.begin(), table.end(), random);
    sets.push_back({DeviceBuffer(kDType, q_elements), DeviceBuffer(kDType, q_elements),
                    DeviceBuffer(cache_dtype, kv_elements), DeviceBuffer(cache_dtype, kv_elements),
                    DeviceBuffer::of(table)});
  }
  std::vector<int32_t> query_start(static_cast<size_t>(shape.seqs) + 1);
  for (size_t i = 0; i < query_start.size(); ++i) {
    query_start[i] = static_cast<int32_t>(static_cast<int64_t>(i) * shape.queries);
  }
  const DeviceBuffer starts = DeviceBuffer::of(query_start);
  const DeviceBuffer context_lens = DeviceBuffer::of(
      std::vector<int32_t>(static_cast<size_t>(shape.seqs), static_cast<int32_t>(shape.context)));

  ops::CudaPagedAttention args = {};
  args.dtype = kDType;
  args.q_stride = int64_t{shape.num_heads} * shape.head_dim;
  args.num_heads = shape.num_heads;
  args.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  args.sliding_window = shape.window;
  args.num_tokens = tokens;
  args.num_seqs = shape.seqs;
  args.max_query_len = shape.queries;
  args.max_context_len = shape.context;
  args.query_start = starts.as<int32_t>();
  args.context_lens = context_lens.as<int32_t>();
  args.table_width = blocks_per_seq;
  const DeviceBuffer scratch =
      DeviceBuffer::of_bytes(static_cast<size_t>(ops::cuda::paged_attention_scratch_bytes(
          shape.seqs, shape.seqs, 1, shape.num_heads, shape.num_kv_heads, shape.head_dim)));
  args.scratch = scratch.data();
  args.cache.dtype = cache_dtype;
  args.cache.block_size = kBlockSize;
  args.cache.num_kv_heads = shape.num_kv_heads;
  args.cache.head_dim = shape.head_dim;
  const auto use_set = [&](int i) -> const ops::CudaPagedAttention& {
    const Set& set = sets[static_cast<size_t>(i)];
    args.q = set.q.data();
    args.out = set.out.data();
    args.cache.keys = set.keys.data();
    args.cache.values = set.values.data();
    args.block_tables = set.block_tables.as<int32_t>();
    return args;
  };
  bench.time(name, work, num_sets,
             [&](int i) { ops::cuda::prefill_attention(bench.stream(), use_set(i)); });
  bench.time(flash_name, work, num_sets,
             [&](int i) { ops::cuda::flash_attention(bench.stream(), use_set(i)); });
}

void run(CudaBench& bench) {
  for (const auto& [heads, kv_heads] : {std::pair(16, 8), std::pair(32, 8)}) {
    const std::string suffix = "/" + std::to_string(heads) + "_heads";
    for (const int64_t length : {1024, 4096, 16384}) {
      attention(bench,
                {"one_of_" + std::to_string(length) + suffix, 1, length, length, heads, kv_heads});
    }
    attention(bench, {"16_of_1024" + suffix, 16, 1024, 1024, heads, kv_heads});
    attention(bench, {"chunk_512_of_4608" + suffix, 1, 512, 4608, heads, kv_heads});
    for (const int64_t queries : {16, 100}) {
      for (const int64_t prefix : {2048, 4096, 16384}) {
        const std::string name =
            "chunk_" + std::to_string(queries) + "_over_" + std::to_string(prefix) + suffix;
        attention(bench, {name, 1, queries, prefix + queries, heads, kv_heads});
      }
    }
    for (const int64_t seqs : {2, 4, 8}) {
      const std::string name = std::to_string(seqs) + "_chunks_16_over_4096" + suffix;
      attention(bench, {name, seqs, 16, 4096 + 16, heads, kv_heads});
    }
    for (const int64_t queries : {16, 32, 64}) {
      const std::string name = "32_chunks_" + std::to_string(queries) + "_over_1024" + suffix;
      attention(bench, {name, 32, queries, 1024 + queries, heads, kv_heads});
    }
  }
  for (const int head_dim : {64, 96, 128, 256}) {
    const std::string suffix = "/head_dim_" + std::to_string(head_dim);
    attention(bench, {"4_of_4096" + suffix, 4, 4096, 4096, 16, 8, head_dim});
    attention(bench, {"4_of_4096_fp8" + suffix, 4, 4096, 4096, 16, 8, head_dim, 0, true});
  }
  attention(bench, {"4_of_4096_window_1024", 4, 4096, 4096, 16, 8, 128, 1024});
}

const BenchGroup group("attention_prefill", run);

}  // namespace
}  // namespace quire::bench
