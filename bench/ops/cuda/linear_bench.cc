// The matrix products of models, each by itself, and as in a decode step: all layers' and the
// vocabulary's, in order. Weights are read from memory, as in a step.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bench.h"
#include "ops/cuda/kernels.h"

namespace quire::bench {
namespace {

struct Shape {
  const char* name;
  int64_t n;
  int64_t k;
  bool silu_and_mul = false;
  bool float_out = false;
};

struct Model {
  const char* name;
  int num_layers;
  std::vector<Shape> layer;
  Shape vocabulary;
};

constexpr int64_t kVocabulary = 151936;

Model qwen3(const char* name, int num_layers, int64_t hidden, int64_t inner, int64_t q_size,
            int64_t kv_size, int64_t num_ranks) {
  return {name,
          num_layers,
          {{"qkv", (q_size + 2 * kv_size) / num_ranks, hidden},
           {"o", hidden, q_size / num_ranks},
           {"gate_up", 2 * inner / num_ranks, hidden, true},
           {"down", hidden, inner / num_ranks}},
          {"lm_head", kVocabulary / num_ranks, hidden, false, true}};
}

// One product and its weights.
class Linear {
 public:
  explicit Linear(const Shape& shape)
      : shape_(shape), weight_(DType::kBFloat16, shape.n * shape.k) {}

  void operator()(CudaStream& stream, int64_t rows, const void* in, void* out) const {
    const int64_t columns = shape_.silu_and_mul ? shape_.n / 2 : shape_.n;
    ops::cuda::linear(stream, {.dtype = DType::kBFloat16,
                               .in = in,
                               .in_stride = shape_.k,
                               .weight = {.format = DType::kBFloat16, .data = weight_.data()},
                               .rows = rows,
                               .n = shape_.n,
                               .k = shape_.k,
                               .bias = nullptr,
                               .out = out,
                               .out_stride = columns,
                               .out_dtype = shape_.float_out ? DType::kFloat32 : DType::kBFloat16,
                               .silu_and_mul = shape_.silu_and_mul});
  }

 private:
  Shape shape_;
  DeviceBuffer weight_;
};

Work work_of(const Shape& shape, int64_t rows) {
  const int64_t columns = shape.silu_and_mul ? shape.n / 2 : shape.n;
  const int64_t out_bytes = rows * columns * (shape.float_out ? 4 : 2);
  return {.bytes = static_cast<double>(2 * shape.n * shape.k + 2 * rows * shape.k + out_bytes),
          .flops = 2.0 * static_cast<double>(rows * shape.n * shape.k)};
}

void run_shape(CudaBench& bench, const Model& model, const Shape& shape, int64_t rows) {
  const std::string name = fmt::format("linear/{}/{}/{}", model.name, shape.name, rows);
  if (!bench.wants(name)) return;
  const Work work = work_of(shape, rows);
  const int num_sets = bench.sets_for(2.0 * static_cast<double>(shape.n * shape.k));
  std::vector<Linear> products;
  for (int i = 0; i < num_sets; ++i) products.emplace_back(shape);
  const DeviceBuffer in(DType::kBFloat16, rows * shape.k);
  const DeviceBuffer out(DType::kFloat32, rows * shape.n);
  bench.time(name, work, num_sets, [&](int set) {
    products[static_cast<size_t>(set)](bench.stream(), rows, in.data(), out.data());
  });
}

// In place of the kernels between them, each product reads what the one before wrote.
void run_step(CudaBench& bench, const Model& model, const std::vector<int64_t>& batches) {
  const auto name_of = [&](int64_t rows) {
    return fmt::format("linear/{}/step/{}", model.name, rows);
  };
  if (std::none_of(batches.begin(), batches.end(),
                   [&](int64_t rows) { return bench.wants(name_of(rows)); })) {
    return;
  }
  std::vector<Linear> products;
  for (int i = 0; i < model.num_layers; ++i) {
    for (const Shape& shape : model.layer) products.emplace_back(shape);
  }
  products.emplace_back(model.vocabulary);
  for (const int64_t rows : batches) {
    Work work = work_of(model.vocabulary, rows);
    int64_t widest = model.vocabulary.n;
    for (const Shape& shape : model.layer) {
      work.bytes += model.num_layers * work_of(shape, rows).bytes;
      work.flops += model.num_layers * work_of(shape, rows).flops;
      widest = std::max({widest, shape.n, shape.k});
    }
    const DeviceBuffer a(DType::kBFloat16, rows * widest, 0.1f);
    const DeviceBuffer b(DType::kFloat32, rows * widest, 0.1f);
    bench.time(name_of(rows), work, 1, [&](int) {
      for (size_t i = 0; i < products.size(); ++i) {
        const bool even = i % 2 == 0;
        products[i](bench.stream(), rows, even ? a.data() : b.data(), even ? b.data() : a.data());
      }
    });
  }
}

void run(CudaBench& bench) {
  const std::vector<int64_t> batches = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  std::vector<Model> models = {qwen3("0.6b", 28, 1024, 3072, 2048, 1024, 1),
                               qwen3("8b", 36, 4096, 12288, 4096, 1024, 1),
                               qwen3("8b-tp2", 36, 4096, 12288, 4096, 1024, 2),
                               qwen3("8b-tp4", 36, 4096, 12288, 4096, 1024, 4)};
  for (const Model& model : models) {
    for (const int64_t rows : batches) {
      for (const Shape& shape : model.layer) run_shape(bench, model, shape, rows);
      run_shape(bench, model, model.vocabulary, rows);
    }
    for (const int64_t rows : {2048, 8192, 16384}) {
      for (const Shape& shape : model.layer) run_shape(bench, model, shape, rows);
    }
    run_step(bench, model, batches);
  }
}

const BenchGroup group("linear", run);

}  // namespace
}  // namespace quire::bench
