// Products of weights of integers beside those of bf16, with the shapes of Qwen3-8B, weights read
// from memory: what linear() does, and each plan of quire's kernel.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/ceil_div.h"
#include "bench.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/group.cuh"
#include "ops/weight.h"

namespace quire::bench {
namespace {

struct GroupShape {
  const char* name;
  int64_t n;
  int64_t k;
  bool silu_and_mul = false;
};

const std::vector<GroupShape> kGroupShapes = {
    {"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 24576, 4096, true}, {"down", 4096, 12288}};
const std::vector<int64_t> kGroupRows = {1, 8, 16, 64, 128, 256, 512, 1024, 2048};

struct GroupKind {
  const char* name;
  ops::WeightFormat format;
};
const std::vector<GroupKind> kGroupKinds = {
    {"bf16", DType::kBFloat16},
    {"int4", ops::WeightFormat::integers(4, 128)},
    {"int4-offsets", ops::WeightFormat::integers(4, 128, true)},
    {"int4-32", ops::WeightFormat::integers(4, 32)},
    {"int8", ops::WeightFormat::integers(8, 128)}};

int64_t weight_bytes(const GroupShape& shape, const GroupKind& kind) {
  return static_cast<int64_t>(
      ops::weight_data_bytes(kind.format, shape.n, shape.k, DeviceType::kCuda));
}

Work work_of(const GroupShape& shape, const GroupKind& kind, int64_t rows) {
  const int64_t columns = shape.silu_and_mul ? shape.n / 2 : shape.n;
  return {.bytes = static_cast<double>(weight_bytes(shape, kind) + 2 * rows * (shape.k + columns)),
          .flops = 2.0 * static_cast<double>(rows * shape.n * shape.k)};
}

// Integers of any bits, scales such that outputs stay near 1.
DeviceBuffer random_tiles(const GroupShape& shape, const GroupKind& kind) {
  if (kind.format.is_dense()) return DeviceBuffer(DType::kBFloat16, shape.n * shape.k, 0.02f);
  const ops::GroupTiles layout = ops::group_tiles(kind.format, shape.n, shape.k);
  std::vector<uint64_t> words(static_cast<size_t>(layout.bytes()) / sizeof(uint64_t));
  std::mt19937_64 random(11);
  std::generate(words.begin(), words.end(), std::ref(random));
  auto* const bytes = reinterpret_cast<std::byte*>(words.data());
  std::vector<float> header(static_cast<size_t>(layout.block_bytes() - layout.data_bytes()) /
                            sizeof(float));
  std::fill(header.begin(), header.end(), 0.002f);
  for (int64_t at = 0; at < layout.bytes(); at += layout.block_bytes()) {
    std::memcpy(bytes + at + layout.data_bytes(), header.data(), header.size() * sizeof(float));
  }
  return DeviceBuffer::of(words);
}

// One product and its weights.
class GroupProduct {
 public:
  GroupProduct(const GroupShape& shape, const GroupKind& kind)
      : shape_(shape), kind_(kind), weight_(random_tiles(shape, kind)) {}

  ops::CudaLinear args(int64_t rows, const void* in, void* out, void* scratch) const {
    return {.dtype = DType::kBFloat16,
            .in = in,
            .in_stride = shape_.k,
            .weight = {.format = kind_.format, .data = weight_.data()},
            .rows = rows,
            .n = shape_.n,
            .k = shape_.k,
            .bias = nullptr,
            .out = out,
            .out_stride = shape_.silu_and_mul ? shape_.n / 2 : shape_.n,
            .out_dtype = DType::kBFloat16,
            .silu_and_mul = shape_.silu_and_mul,
            .scratch = scratch};
  }

 private:
  GroupShape shape_;
  GroupKind kind_;
  DeviceBuffer weight_;
};

// What the products of some rows read and write beside their weights.
struct GroupBuffers {
  explicit GroupBuffers(int64_t rows)
      : in(DType::kBFloat16, rows * kWidest),
        out(DType::kBFloat16, rows * kWidest),
        scratch(DeviceBuffer::of_bytes(
            static_cast<size_t>(ops::group_scratch_bytes(rows, kWidest, 4096, false)))) {}
  static constexpr int64_t kWidest = 24576;
  DeviceBuffer in;
  DeviceBuffer out;
  DeviceBuffer scratch;
};

void run_shape(CudaBench& bench, const GroupShape& shape, const GroupKind& kind) {
  const auto name_of = [&](int64_t rows) {
    return fmt::format("group-linear/8b/{}/{}/{}", shape.name, rows, kind.name);
  };
  if (std::none_of(kGroupRows.begin(), kGroupRows.end(),
                   [&](int64_t rows) { return bench.wants(name_of(rows)); })) {
    return;
  }
  const int num_sets = bench.sets_for(static_cast<double>(weight_bytes(shape, kind)));
  std::vector<GroupProduct> products;
  for (int i = 0; i < num_sets; ++i) products.emplace_back(shape, kind);
  for (const int64_t rows : kGroupRows) {
    const GroupBuffers buffers(rows);
    bench.time(name_of(rows), work_of(shape, kind, rows), num_sets, [&](int set) {
      ops::cuda::linear(bench.stream(),
                        products[static_cast<size_t>(set)].args(
                            rows, buffers.in.data(), buffers.out.data(), buffers.scratch.data()));
    });
  }
}

// The products of some layers in order, which wait for each other as in a step. All read the same
// activations: after some products of random weights those would be zero or infinite.
void run_layers(CudaBench& bench, const GroupKind& kind) {
  constexpr int kLayers = 8;
  const auto name_of = [&](int64_t rows) {
    return fmt::format("group-layers/8b/{}/{}", rows, kind.name);
  };
  if (std::none_of(kGroupRows.begin(), kGroupRows.end(),
                   [&](int64_t rows) { return bench.wants(name_of(rows)); })) {
    return;
  }
  std::vector<GroupProduct> products;
  for (int i = 0; i < kLayers; ++i) {
    for (const GroupShape& shape : kGroupShapes) products.emplace_back(shape, kind);
  }
  for (const int64_t rows : kGroupRows) {
    Work work;
    for (const GroupShape& shape : kGroupShapes) {
      work.bytes += kLayers * work_of(shape, kind, rows).bytes;
      work.flops += kLayers * work_of(shape, kind, rows).flops;
    }
    const GroupBuffers buffers(rows);
    bench.time(name_of(rows), work, 1, [&](int) {
      for (const GroupProduct& product : products) {
        ops::cuda::linear(bench.stream(), product.args(rows, buffers.in.data(), buffers.out.data(),
                                                       buffers.scratch.data()));
      }
    });
  }
}

std::vector<ops::cuda::GroupPlan> group_plans_for(int64_t rows, int64_t k) {
  struct Tile {
    int rows;
    int warpgroups;
  };
  std::vector<ops::cuda::GroupPlan> plans;
  for (const Tile& tile : {Tile{8, 1}, Tile{16, 1}, Tile{64, 1}, Tile{128, 1}, Tile{128, 3}}) {
    if (tile.rows < std::min<int64_t>(rows, 64)) continue;
    if (tile.rows > 2 * rows && tile.rows > 8) continue;
    for (const int splits : {1, 2, 4, 8}) {
      for (const int num_stages : {2, 3, 4, 6, 8}) {
        const int most_in_stages = tile.rows == 128 ? 3 : 4;
        if (num_stages > ceil_div(k / 128, splits) || (tile.rows == 128 && num_stages > 4))
          continue;
        for (int in = 2; in <= std::min(num_stages, most_in_stages); ++in) {
          plans.push_back({tile.rows, tile.warpgroups, splits, num_stages, in});
        }
      }
    }
  }
  return plans;
}

// Times all plans of a product; prints the best of them and what the rules choose.
void run_plans(CudaBench& bench, const GroupShape& shape, const GroupKind& kind) {
  const int num_sets = bench.sets_for(static_cast<double>(weight_bytes(shape, kind)));
  std::vector<GroupProduct> products;
  for (const int64_t rows : {8, 16, 64, 128, 256}) {
    const std::string name = fmt::format("group-plans/8b/{}/{}/{}", shape.name, rows, kind.name);
    if (!bench.wants(name)) continue;
    while (static_cast<int>(products.size()) < num_sets) products.emplace_back(shape, kind);
    const GroupBuffers buffers(rows);
    const auto args_of = [&](int set) {
      return products[static_cast<size_t>(set)].args(rows, buffers.in.data(), buffers.out.data(),
                                                     buffers.scratch.data());
    };
    struct Timed {
      double microseconds;
      ops::cuda::GroupPlan plan;
    };
    const auto time_of = [&](const ops::cuda::GroupPlan& plan) {
      return bench.microseconds_of(
          num_sets, [&](int set) { ops::cuda::group_linear(bench.stream(), args_of(set), plan); });
    };
    const auto print = [&](const char* what, const Timed& timed) {
      const ops::cuda::GroupPlan& plan = timed.plan;
      fmt::print(
          "{:<40} {:<5} {:>8.2f} us  {} rows, {} warpgroups, {} splits, {} stages, {} of "
          "activations\n",
          name, what, timed.microseconds, plan.tile_rows, plan.warpgroups, plan.splits,
          plan.num_stages, plan.num_in_stages);
    };
    const ops::cuda::GroupPlan rules = ops::cuda::group_plan(args_of(0));
    bench.time(name + "/rules", work_of(shape, kind, rows), num_sets,
               [&](int set) { ops::cuda::group_linear(bench.stream(), args_of(set), rules); });
    print("rules", {time_of(rules), rules});
    std::vector<Timed> all;
    for (const auto& plan : group_plans_for(rows, shape.k)) all.push_back({time_of(plan), plan});
    std::sort(all.begin(), all.end(),
              [](const Timed& a, const Timed& b) { return a.microseconds < b.microseconds; });
    for (size_t i = 0; i < std::min<size_t>(4, all.size()); ++i) print("", all[i]);
    std::fflush(stdout);
  }
}

void run_groups(CudaBench& bench) {
  for (const GroupKind& kind : kGroupKinds) {
    for (const GroupShape& shape : kGroupShapes) run_shape(bench, shape, kind);
    run_layers(bench, kind);
    if (kind.format.is_dense()) continue;
    for (const GroupShape& shape : kGroupShapes) run_plans(bench, shape, kind);
  }
}

const BenchGroup group_linear_benches("group", run_groups);

}  // namespace
}  // namespace quire::bench
