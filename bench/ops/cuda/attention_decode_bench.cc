// Decode attention, and the kernel before it that fills the cache. Both are bound by memory: the
// bytes of decode attention are those of its contexts' keys and values.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "base/ceil_div.h"
#include "bench.h"
#include "ops/cuda/attention/attention.cuh"
#include "ops/cuda/decode_items.h"

namespace quire::bench {
namespace {

constexpr DType kDType = DType::kBFloat16;
constexpr int kBlockSize = 16;

struct Heads {
  std::string name;
  int num_heads;
  int num_kv_heads;
  int head_dim;
};

const Heads kQwen06 = {"16_8_128", 16, 8, 128};
const Heads kQwen8 = {"32_8_128", 32, 8, 128};

// What one launch of decode attention reads and writes.
struct Set {
  DeviceBuffer q, out, keys, values, block_tables;
};

// Sequences with contexts of `shortest` to `longest` tokens, evenly spread, in a random order.
struct Load {
  int64_t num_seqs;
  int32_t shortest;
  int32_t longest;

  std::string name() const {
    const std::string to = shortest == longest ? "" : "_to_" + std::to_string(longest);
    return std::to_string(num_seqs) + "_of_" + std::to_string(shortest) + to;
  }
  std::vector<int32_t> context_lens(std::mt19937& random) const {
    std::vector<int32_t> result(static_cast<size_t>(num_seqs), shortest);
    for (int64_t i = 1; i < num_seqs; ++i) {
      result[static_cast<size_t>(i)] +=
          static_cast<int32_t>((longest - shortest) * i / (num_seqs - 1));
    }
    std::ranges::shuffle(result, random);
    return result;
  }
};

void decode(CudaBench& bench, const Heads& heads, DType cache_dtype, const Load& load) {
  const std::string name = "attention_decode/" + heads.name + "/" +
                           std::string(name_of(cache_dtype)) + "/" + load.name();
  if (!bench.wants(name)) return;
  std::mt19937 random(1);
  const int64_t num_seqs = load.num_seqs;
  const std::vector<int32_t> context_list = load.context_lens(random);
  const auto num_tokens = std::accumulate(context_list.begin(), context_list.end(), int64_t{0});
  const int64_t blocks_per_seq = ceil_div(load.longest, kBlockSize);
  const int64_t q_elements = num_seqs * heads.num_heads * heads.head_dim;
  const int64_t row = int64_t{heads.num_kv_heads} * heads.head_dim;
  const int64_t cache_elements = num_seqs * blocks_per_seq * kBlockSize * row;
  const Work work = {.bytes = static_cast<double>(2 * num_tokens * row) *
                                  static_cast<double>(size_of(cache_dtype)) +
                              4.0 * static_cast<double>(q_elements)};

  std::vector<int32_t> table(static_cast<size_t>(num_seqs * blocks_per_seq));
  std::iota(table.begin(), table.end(), 0);
  std::vector<Set> sets;
  const int num_sets = bench.sets_for(work.bytes);
  for (int i = 0; i < num_sets; ++i) {
    std::shuffle(table.begin(), table.end(), random);
    sets.push_back({DeviceBuffer(kDType, q_elements), DeviceBuffer(kDType, q_elements),
                    DeviceBuffer(cache_dtype, cache_elements),
                    DeviceBuffer(cache_dtype, cache_elements), DeviceBuffer::of(table)});
  }
  const std::vector<ops::DecodeItem> item_list = ops::make_decode_items(context_list);
  const auto num_items = static_cast<int32_t>(item_list.size());
  const DeviceBuffer items = DeviceBuffer::of(item_list);
  const DeviceBuffer item_count = DeviceBuffer::of(std::vector<int32_t>{num_items});
  const DeviceBuffer context_lens = DeviceBuffer::of(context_list);
  const DeviceBuffer scratch =
      DeviceBuffer::of_bytes(static_cast<size_t>(ops::cuda::paged_attention_scratch_bytes(
          num_items, num_seqs, 1, heads.num_heads, heads.num_kv_heads, heads.head_dim)));

  ops::CudaPagedAttention args = {};
  args.dtype = kDType;
  args.q_stride = int64_t{heads.num_heads} * heads.head_dim;
  args.num_heads = heads.num_heads;
  args.scale = 1.0f / std::sqrt(static_cast<float>(heads.head_dim));
  args.num_tokens = num_seqs;
  args.num_seqs = num_seqs;
  args.max_query_len = 1;
  args.max_context_len = load.longest;
  args.context_lens = context_lens.as<int32_t>();
  args.table_width = blocks_per_seq;
  args.num_decode_seqs = num_seqs;
  args.decode_items = items.as<ops::DecodeItem>();
  args.num_decode_items = item_count.as<int32_t>();
  args.max_decode_items = num_items;
  args.max_decode_rows = num_items;
  args.cache = {cache_dtype, nullptr, nullptr, kBlockSize, heads.num_kv_heads, heads.head_dim};
  args.scratch = scratch.data();
  bench.time(name, work, num_sets, [&](int i) {
    const Set& set = sets[static_cast<size_t>(i)];
    args.q = set.q.data();
    args.out = set.out.data();
    args.cache.keys = set.keys.data();
    args.cache.values = set.values.data();
    args.block_tables = set.block_tables.as<int32_t>();
    ops::cuda::decode_attention(bench.stream(), args);
  });
}

void run_decode(CudaBench& bench) {
  // The last are as in bench.py's work: prompts and outputs of 100 to 1,024 tokens.
  constexpr Load kLoads[] = {{1, 128, 128},    {1, 256, 256},    {1, 640, 640},   {1, 3500, 3500},
                             {1, 8192, 8192},  {8, 256, 256},    {8, 1024, 1024}, {64, 300, 300},
                             {64, 1024, 1024}, {64, 4096, 4096}, {256, 560, 560}, {256, 1024, 1024},
                             {256, 100, 1600}, {64, 500, 2000}};
  for (const Heads& heads : {kQwen06, kQwen8}) {
    for (const DType cache_dtype : {kDType, DType::kFloat8E4M3}) {
      for (const Load& load : kLoads) decode(bench, heads, cache_dtype, load);
    }
  }
  for (const DType cache_dtype : {kDType, DType::kFloat8E4M3}) {
    for (const int head_dim : {64, 96, 256}) {
      const std::string name = "32_8_" + std::to_string(head_dim);
      decode(bench, {name, 32, 8, head_dim}, cache_dtype, {64, 2048, 2048});
    }
    decode(bench, {"64_4_128", 64, 4, 128}, cache_dtype, {64, 2048, 2048});
    decode(bench, {"16_16_128", 16, 16, 128}, cache_dtype, {64, 1024, 1024});
  }
}

void qk_norm_rope(CudaBench& bench, const Heads& heads, DType cache_dtype, int64_t num_tokens) {
  const std::string name = "qk_norm_rope/" + heads.name + "/" + std::string(name_of(cache_dtype)) +
                           "/" + std::to_string(num_tokens);
  if (!bench.wants(name)) return;
  const int64_t kv_row = int64_t{2} * heads.num_kv_heads * heads.head_dim;
  const int64_t q_row = int64_t{heads.num_heads} * heads.head_dim;
  const Work work = {.bytes =
                         static_cast<double>(num_tokens) *
                         (4.0 * static_cast<double>(q_row) + 2.0 * static_cast<double>(kv_row) +
                          static_cast<double>(kv_row) * static_cast<double>(size_of(cache_dtype)))};
  const int num_sets = bench.sets_for(work.bytes);
  const int64_t num_blocks = ceil_div(num_tokens, kBlockSize);
  std::vector<DeviceBuffer> qkv, keys, values;
  for (int i = 0; i < num_sets; ++i) {
    qkv.emplace_back(kDType, num_tokens * (q_row + kv_row));
    keys.emplace_back(cache_dtype, num_blocks * kBlockSize * kv_row / 2);
    values.emplace_back(cache_dtype, num_blocks * kBlockSize * kv_row / 2);
  }
  constexpr int64_t kMaxPosition = 40960;
  const DeviceBuffer cos_sin(DType::kFloat32, kMaxPosition * heads.head_dim);
  const DeviceBuffer norm(DType::kFloat32, heads.head_dim);
  std::vector<int32_t> position_list(static_cast<size_t>(num_tokens));
  for (size_t i = 0; i < position_list.size(); ++i)
    position_list[i] = static_cast<int32_t>(i % 2048);
  std::vector<int64_t> slot_list(static_cast<size_t>(num_tokens));
  std::iota(slot_list.begin(), slot_list.end(), 0);
  const DeviceBuffer positions = DeviceBuffer::of(position_list);
  const DeviceBuffer slots = DeviceBuffer::of(slot_list);
  bench.time(name, work, num_sets, [&](int set) {
    const auto at = static_cast<size_t>(set);
    ops::cuda::qk_norm_rope_cache(bench.stream(),
                                  {kDType,
                                   qkv[at].data(),
                                   heads.num_heads,
                                   norm.as<float>(),
                                   norm.as<float>(),
                                   1e-6f,
                                   cos_sin.as<float>(),
                                   heads.head_dim,
                                   num_tokens,
                                   positions.as<int32_t>(),
                                   slots.as<int64_t>(),
                                   {cache_dtype, keys[at].data(), values[at].data(), kBlockSize,
                                    heads.num_kv_heads, heads.head_dim}});
  });
}

void run_qk_norm_rope(CudaBench& bench) {
  for (const Heads& heads : {kQwen06, kQwen8}) {
    for (const int64_t num_tokens : {1, 8, 64, 256, 512, 2048, 16384}) {
      qk_norm_rope(bench, heads, kDType, num_tokens);
    }
    qk_norm_rope(bench, heads, DType::kFloat8E4M3, 16384);
  }
}

const BenchGroup decode_group("attention_decode", run_decode);
const BenchGroup qk_norm_rope_group("qk_norm_rope", run_qk_norm_rope);

}  // namespace
}  // namespace quire::bench
