// The matrix products of Qwen3-0.6B: one row (decode: bound by reading the weights) and 512
// (prefill: by arithmetic).
#include "op_bench_util.h"
#include "ops/linear.h"

namespace quire::bench {
namespace {

void linear(benchmark::State& state, DType dtype) {
  const int64_t rows = state.range(0);
  const int64_t n = state.range(1);
  const int64_t k = state.range(2);
  Machine machine(dtype);
  // Several copies, so that one row's weights come from memory and not from the cache.
  const auto weight_bytes = static_cast<int64_t>(ops::Weight(dtype, n, k).bytes());
  const int64_t copies = rows > 1 ? 1 : std::max<int64_t>(1, (int64_t{256} << 20) / weight_bytes);
  std::vector<float> source = random_values(n * k);
  std::vector<ops::Weight> weights;
  for (int64_t i = 0; i < copies; ++i) {
    weights.emplace_back(dtype, n, k);
    weights.back().pack_rows(0, Tensor(source.data(), DType::kFloat32, {n, k}));
  }
  std::vector<float> in = random_values(rows * k);
  std::vector<float> out(static_cast<size_t>(rows * n));
  size_t next = 0;
  for (auto _ : state) {
    ops::linear(machine.stream, Tensor(in.data(), DType::kFloat32, {rows, k}),
                weights[next++ % weights.size()], Tensor(),
                Tensor(out.data(), DType::kFloat32, {rows, n}));
    benchmark::DoNotOptimize(out.data());
  }
  report(state, machine, static_cast<double>(weight_bytes),
         2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k));
}

void shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t rows : {1, 8, 512}) {
    bench->Args({rows, 4096, 1024});  // qkv
    bench->Args({rows, 1024, 2048});  // o
    bench->Args({rows, 6144, 1024});  // gate and up
    bench->Args({rows, 1024, 3072});  // down
  }
  bench->Args({1, 151936, 1024});  // output layer
  bench->ArgNames({"rows", "N", "K"})->UseRealTime();
}

BENCHMARK_CAPTURE(linear, bf16, DType::kBFloat16)->Apply(shapes);
BENCHMARK_CAPTURE(linear, f32, DType::kFloat32)->Apply(shapes);

}  // namespace
}  // namespace quire::bench
