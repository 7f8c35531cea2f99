// Norms, gates and sampling: small beside the matrix products, and worth seeing that they stay so.
#include <numeric>

#include "op_bench_util.h"
#include "ops/activation.h"
#include "ops/lora.h"
#include "ops/norm.h"
#include "ops/sampling.h"

namespace quire::bench {
namespace {

void add_rms_norm(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int64_t width = 1024;
  Machine machine(DType::kFloat32);
  std::vector<float> x = random_values(rows * width);
  std::vector<float> residual(x.size());
  std::vector<float> weight = random_values(width);
  std::vector<float> out(x.size());
  const Tensor residual_tensor(residual.data(), DType::kFloat32, {rows, width});
  for (auto _ : state) {
    ops::add_rms_norm(machine.stream, Tensor(x.data(), DType::kFloat32, {rows, width}),
                      residual_tensor, Tensor(weight.data(), DType::kFloat32, {width}), 1e-6f,
                      Tensor(out.data(), DType::kFloat32, {rows, width}));
    benchmark::DoNotOptimize(out.data());
  }
  report(state, machine, 16.0 * static_cast<double>(rows * width),
         5.0 * static_cast<double>(rows * width));
}

void silu_and_mul(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int64_t width = 3072;
  Machine machine(DType::kFloat32);
  std::vector<float> gate_up = random_values(rows * 2 * width);
  std::vector<float> out(static_cast<size_t>(rows * width));
  for (auto _ : state) {
    ops::silu_and_mul(machine.stream, Tensor(gate_up.data(), DType::kFloat32, {rows, 2 * width}),
                      Tensor(out.data(), DType::kFloat32, {rows, width}));
    benchmark::DoNotOptimize(out.data());
  }
  report(state, machine, 12.0 * static_cast<double>(rows * width),
         22.0 * static_cast<double>(rows * width));
}

void add_lora(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int64_t width = 3072;
  Machine machine(DType::kFloat32);
  std::vector<float> delta = random_values(rows * width);
  std::vector<float> out(delta.size());
  std::vector<int32_t> row_ids(static_cast<size_t>(rows));
  std::iota(row_ids.begin(), row_ids.end(), 0);
  for (auto _ : state) {
    ops::add_lora(machine.stream, row_ids,
                  {.delta = Tensor(delta.data(), DType::kFloat32, {rows, width}), .scale = 2},
                  Tensor(out.data(), DType::kFloat32, {rows, width}));
    benchmark::DoNotOptimize(out.data());
  }
  report(state, machine, 12.0 * static_cast<double>(rows * width),
         2.0 * static_cast<double>(rows * width));
}

void sample(benchmark::State& state, float temperature, int top_k, float top_p) {
  ops::SamplingRow row;
  row.temperature = temperature;
  row.top_k = top_k;
  row.top_p = top_p;
  const int64_t rows = state.range(0);
  const int64_t vocab = 151936;
  Machine machine(DType::kFloat32);
  const std::vector<float> source = random_values(rows * vocab);
  std::vector<float> logits = source;
  const std::vector<ops::SamplingRow> params(static_cast<size_t>(rows), row);
  std::vector<ops::SampledToken> tokens(params.size());
  for (auto _ : state) {
    ops::sample(machine.stream, Tensor(logits.data(), DType::kFloat32, {rows, vocab}), params,
                tokens);
    benchmark::DoNotOptimize(tokens.data());
  }
  report(state, machine, 4.0 * static_cast<double>(rows * vocab),
         static_cast<double>(rows * vocab));
}

BENCHMARK(add_rms_norm)->ArgName("rows")->Arg(1)->Arg(512)->UseRealTime();
BENCHMARK(silu_and_mul)->ArgName("rows")->Arg(1)->Arg(512)->UseRealTime();
BENCHMARK(add_lora)->ArgName("rows")->Arg(1)->Arg(512)->UseRealTime();
BENCHMARK_CAPTURE(sample, greedy, 0.0f, 0, 1.0f)->ArgName("rows")->Arg(1)->Arg(64)->UseRealTime();
BENCHMARK_CAPTURE(sample, top_p, 0.6f, 20, 0.95f)->ArgName("rows")->Arg(1)->Arg(64)->UseRealTime();

}  // namespace
}  // namespace quire::bench
