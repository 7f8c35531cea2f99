// Products of float8 weights beside those of bf16, with the shapes of Qwen3-8B and weights read
// from memory: linear() with its rounding of activations, and each plan of quire's own kernel.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/ceil_div.h"
#include "bench.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/float8.cuh"

namespace quire::bench {
namespace {

struct Shape {
  const char* name;
  int64_t n;
  int64_t k;
  bool silu_and_mul = false;
};

const std::vector<Shape> kShapes = {
    {"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 24576, 4096, true}, {"down", 4096, 12288}};
const std::vector<int64_t> kRows = {1, 8, 16, 32, 64, 128, 256, 512, 2048, 8192};

// How a weight is stored: bf16, or float8 with a scale an output or a block.
struct Kind {
  const char* name;
  ops::WeightFormat format;
};
const std::vector<Kind> kKinds = {{"bf16", DType::kBFloat16},
                                  {"float8", ops::WeightFormat::float8()},
                                  {"float8-blocks", ops::WeightFormat::float8(128)}};

int64_t weight_bytes(const Shape& shape, const Kind& kind) {
  return shape.n * shape.k * static_cast<int64_t>(size_of(kind.format.dtype));
}

Work work_of(const Shape& shape, const Kind& kind, int64_t rows) {
  const int64_t columns = shape.silu_and_mul ? shape.n / 2 : shape.n;
  return {.bytes = static_cast<double>(weight_bytes(shape, kind) + 2 * rows * (shape.k + columns)),
          .flops = 2.0 * static_cast<double>(rows * shape.n * shape.k)};
}

// One product and its weights.
class Linear {
 public:
  Linear(const Shape& shape, const Kind& kind)
      : shape_(shape),
        kind_(kind),
        weight_(kind.format.dtype, shape.n * shape.k),
        scales_(DType::kFloat32, shape.n) {}

  ops::CudaLinear args(int64_t rows, const void* in, void* out, void* scratch) const {
    return {.dtype = DType::kBFloat16,
            .in = in,
            .in_stride = shape_.k,
            .weight = {.format = kind_.format,
                       .data = weight_.data(),
                       .scales = scales_.as<const float>()},
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
  Shape shape_;
  Kind kind_;
  DeviceBuffer weight_;
  DeviceBuffer scales_;
};

// What the products of some rows read and write beside their weights.
struct Buffers {
  Buffers(int64_t rows, int64_t widest)
      : in(DType::kBFloat16, rows * widest),
        out(DType::kBFloat16, rows * widest),
        scratch(
            DeviceBuffer::of_bytes(static_cast<size_t>(ops::linear_scratch_bytes(rows, widest)))) {}
  DeviceBuffer in;
  DeviceBuffer out;
  DeviceBuffer scratch;
};

void run_shape(CudaBench& bench, const Shape& shape, const Kind& kind) {
  const auto name_of = [&](int64_t rows) {
    return fmt::format("float8-linear/8b/{}/{}/{}", shape.name, rows, kind.name);
  };
  if (std::none_of(kRows.begin(), kRows.end(),
                   [&](int64_t rows) { return bench.wants(name_of(rows)); })) {
    return;
  }
  const int num_sets = bench.sets_for(static_cast<double>(weight_bytes(shape, kind)));
  std::vector<Linear> products;
  for (int i = 0; i < num_sets; ++i) products.emplace_back(shape, kind);
  for (const int64_t rows : kRows) {
    const Buffers buffers(rows, std::max(shape.n, shape.k));
    bench.time(name_of(rows), work_of(shape, kind, rows), num_sets, [&](int set) {
      ops::cuda::linear(bench.stream(),
                        products[static_cast<size_t>(set)].args(
                            rows, buffers.in.data(), buffers.out.data(), buffers.scratch.data()));
    });
  }
}

// The products of some layers in order, which wait for each other as in a step. All read the same
// activations: after some products of random weights those would be zero or infinite.
void run_layers(CudaBench& bench, const Kind& kind) {
  constexpr int kLayers = 8;
  const auto name_of = [&](int64_t rows) {
    return fmt::format("float8-linear/8b/{}-layers/{}/{}", kLayers, rows, kind.name);
  };
  if (std::none_of(kRows.begin(), kRows.end(),
                   [&](int64_t rows) { return bench.wants(name_of(rows)); })) {
    return;
  }
  std::vector<Linear> products;
  for (int i = 0; i < kLayers; ++i) {
    for (const Shape& shape : kShapes) products.emplace_back(shape, kind);
  }
  for (const int64_t rows : kRows) {
    Work work;
    for (const Shape& shape : kShapes) {
      work.bytes += kLayers * work_of(shape, kind, rows).bytes;
      work.flops += kLayers * work_of(shape, kind, rows).flops;
    }
    const Buffers buffers(rows, 24576);
    bench.time(name_of(rows), work, 1, [&](int) {
      for (const Linear& product : products) {
        ops::cuda::linear(bench.stream(), product.args(rows, buffers.in.data(), buffers.out.data(),
                                                       buffers.scratch.data()));
      }
    });
  }
}

// Only the rounding of activations.
void run_rounding(CudaBench& bench, const Kind& kind) {
  for (const int64_t rows : kRows) {
    for (const int64_t k : {4096, 12288}) {
      const std::string name = fmt::format("float8-round/{}/{}/{}", k, rows, kind.name);
      if (!bench.wants(name)) continue;
      const Linear product({"", 16, k}, kind);
      const Buffers buffers(rows, k);
      const ops::CudaLinear args =
          product.args(rows, buffers.in.data(), buffers.out.data(), buffers.scratch.data());
      const auto activations = ops::cuda::float8_activations(args, false);
      bench.time(name, {.bytes = 3.0 * static_cast<double>(rows * k)}, 1,
                 [&](int) { ops::cuda::round_activations(bench.stream(), args, activations); });
    }
  }
}

std::vector<ops::cuda::Float8Plan> plans_for(int64_t rows, int64_t k) {
  int tile_rows = 8;
  while (tile_rows < std::min<int64_t>(rows, 64)) tile_rows *= 2;
  std::vector<ops::cuda::Float8Plan> plans;
  for (const int tile_columns : {64, 128}) {
    if (tile_columns == 128 && tile_rows != 64) continue;
    for (const int splits : {1, 2, 4, 8}) {
      for (const int num_stages : {3, 4, 6, 8}) {
        if (num_stages <= ceil_div(k / 128, splits)) {
          plans.push_back({tile_rows, tile_columns, splits, num_stages});
        }
      }
    }
  }
  return plans;
}

// Times all plans of a product whose activations are rounded already; prints the best of them, what
// the rules choose, and cuBLAS, which leaves the activation to another kernel.
void run_plans(CudaBench& bench, const Shape& shape, const Kind& kind) {
  const int num_sets = bench.sets_for(static_cast<double>(weight_bytes(shape, kind)));
  std::vector<Linear> products;
  for (const int64_t rows : {8, 16, 32, 64, 128, 256}) {
    const std::string name = fmt::format("float8-plans/8b/{}/{}/{}", shape.name, rows, kind.name);
    if (!bench.wants(name)) continue;
    while (static_cast<int>(products.size()) < num_sets) products.emplace_back(shape, kind);
    const Buffers buffers(rows, std::max(shape.n, shape.k));
    const auto args_of = [&](int set) {
      return products[static_cast<size_t>(set)].args(rows, buffers.in.data(), buffers.out.data(),
                                                     buffers.scratch.data());
    };
    const auto activations = ops::cuda::float8_activations(args_of(0), false);
    ops::cuda::round_activations(bench.stream(), args_of(0), activations);
    struct Timed {
      double microseconds;
      ops::cuda::Float8Plan plan;
    };
    const auto time_of = [&](const ops::cuda::Float8Plan& plan) {
      return bench.microseconds_of(num_sets, [&](int set) {
        ops::cuda::float8_linear(bench.stream(), args_of(set), activations, plan);
      });
    };
    const auto print = [&](const char* what, const Timed& timed) {
      const ops::cuda::Float8Plan& plan = timed.plan;
      fmt::print("{:<40} {:<5} {:>8.2f} us  {} x {} tiles, {} splits, {} stages\n", name, what,
                 timed.microseconds, plan.tile_rows, plan.tile_columns, plan.splits,
                 plan.num_stages);
    };
    const ops::cuda::Float8Plan rules = ops::cuda::float8_plan(args_of(0));
    bench.time(name + "/rules", work_of(shape, kind, rows), num_sets, [&](int set) {
      ops::cuda::float8_linear(bench.stream(), args_of(set), activations, rules);
    });
    print("rules", {time_of(rules), rules});
    std::vector<Timed> all;
    for (const auto& plan : plans_for(rows, shape.k)) all.push_back({time_of(plan), plan});
    std::sort(all.begin(), all.end(),
              [](const Timed& a, const Timed& b) { return a.microseconds < b.microseconds; });
    for (size_t i = 0; i < std::min<size_t>(3, all.size()); ++i) print("", all[i]);
    bench.time(name + "/cublas", work_of(shape, kind, rows), num_sets, [&](int set) {
      ops::CudaLinear args = args_of(set);
      args.silu_and_mul = false;
      args.out_stride = shape.n;
      ops::cuda::cublas_linear(bench.stream(), args, nullptr);
    });
    std::fflush(stdout);
  }
}

void run(CudaBench& bench) {
  for (const Shape& shape : kShapes) {
    for (const Kind& kind : kKinds) run_shape(bench, shape, kind);
  }
  for (const Kind& kind : kKinds) {
    run_shape(bench, {"square", 8192, 8192}, kind);
    run_layers(bench, kind);
    if (kind.format.is_dense()) continue;
    run_rounding(bench, kind);
    for (const Shape& shape : kShapes) run_plans(bench, shape, kind);
  }
}

const BenchGroup group("float8", run);

}  // namespace
}  // namespace quire::bench
