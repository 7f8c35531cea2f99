// The matrix products of Qwen3-0.6B: one row (decode: bound by reading the weights), some streams,
// and 512 rows (prefill: by arithmetic). %read is the share of the memory's bandwidth at which the
// weights, scales included, were read; %peak that of the multiply-adds that the instruction set
// does from registers for weights of this type, both measured just before.
#include "op_bench_util.h"
#include "ops/linear.h"

namespace quire::bench {
namespace {

using ops::Weight;
using ops::WeightFormat;

Weight dense_weight(DType dtype, int64_t n, int64_t k, std::vector<float>& source) {
  Weight weight(dtype, n, k);
  weight.pack_rows(0, Tensor(source.data(), DType::kFloat32, {n, k}));
  return weight;
}

Weight float8_weight(int64_t n, int64_t k, const std::vector<float>& source) {
  std::vector<Float8E4M3> rounded(source.begin(), source.end());
  std::vector<float> scales(static_cast<size_t>(n), 0.01f);
  Weight weight(WeightFormat::float8(), n, k);
  weight.pack_rows(0, Tensor(rounded.data(), DType::kFloat8E4M3, {n, k}));
  weight.set_scales(0, Tensor(scales.data(), DType::kFloat32, {n, 1}));
  return weight;
}

// Every value of the format in turn.
Weight integer_weight(const WeightFormat& format, int64_t n, int64_t k) {
  const int values = format.kind == ops::WeightKind::kInt4 ? 16 : 256;
  std::vector<int8_t> data(static_cast<size_t>(k));
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<int8_t>(static_cast<int>(i) * 7 % values - values / 2);
  }
  const std::vector<float> scales(static_cast<size_t>(k / format.group_size), 0.01f);
  const float* offsets = format.has_offsets ? scales.data() : nullptr;
  Weight weight(format, n, k);
  for (int64_t row = 0; row < n; ++row) {
    weight.pack_groups(
        row, {.rows = 1, .data = data.data(), .scales = scales.data(), .offsets = offsets});
  }
  return weight;
}

Weight make_weight(const WeightFormat& format, int64_t n, int64_t k, std::vector<float>& source) {
  if (format.is_integer()) return integer_weight(format, n, k);
  if (format.has_scales()) return float8_weight(n, k, source);
  return dense_weight(format.dtype, n, k, source);
}

void linear(benchmark::State& state, const WeightFormat& format) {
  const int64_t rows = state.range(0);
  const int64_t n = state.range(1);
  const int64_t k = state.range(2);
  // Several copies, so that the weights of few rows come from memory and not from the cache.
  const auto weight_bytes = static_cast<int64_t>(Weight(format, n, k).bytes());
  const int64_t copies = rows > 64 ? 1 : std::max<int64_t>(1, (int64_t{256} << 20) / weight_bytes);
  std::vector<float> source = random_values(format.is_integer() ? 0 : n * k);
  std::vector<Weight> weights;
  for (int64_t i = 0; i < copies; ++i) weights.push_back(make_weight(format, n, k, source));
  std::vector<float> in = random_values(rows * k);
  std::vector<float> out(static_cast<size_t>(rows * n));
  // Weights of float8 meet activations of float32.
  Machine machine(format.dtype == DType::kFloat8E4M3 ? DType::kFloat32 : format.dtype);
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
  for (const int64_t rows : {1, 2, 6, 16, 64, 512}) {
    bench->Args({rows, 4096, 1024});  // qkv
    bench->Args({rows, 1024, 2048});  // o
    bench->Args({rows, 6144, 1024});  // gate and up
    bench->Args({rows, 1024, 3072});  // down
  }
  bench->Args({1, 151936, 1024});  // output layer
  bench->ArgNames({"rows", "N", "K"})->UseRealTime();
}

// As --quantization makes them in groups of 32: activations are rounded to int8.
WeightFormat integers(int bits, int64_t group_size) {
  WeightFormat format =
      WeightFormat::integers(bits, group_size, /*has_offsets=*/bits == 4, DType::kBFloat16);
  format.rounds_activations = true;
  return format;
}

BENCHMARK_CAPTURE(linear, int8_32, integers(8, 32))->Apply(shapes);
BENCHMARK_CAPTURE(linear, int4_32, integers(4, 32))->Apply(shapes);
BENCHMARK_CAPTURE(linear, int8_128, integers(8, 128))->Apply(shapes);
BENCHMARK_CAPTURE(linear, int4_128, integers(4, 128))->Apply(shapes);
BENCHMARK_CAPTURE(linear, fp8, WeightFormat::float8())->Apply(shapes);
BENCHMARK_CAPTURE(linear, bf16, DType::kBFloat16)->Apply(shapes);
BENCHMARK_CAPTURE(linear, f32, DType::kFloat32)->Apply(shapes);

}  // namespace
}  // namespace quire::bench
