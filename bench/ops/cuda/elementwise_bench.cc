// Embeddings, norms and gates, at decode batches, where latency counts, and at prefill's, where
// bandwidth does.
#include <random>

#include "bench.h"
#include "ops/cuda/kernels.h"

namespace quire::bench {
namespace {

constexpr DType kDType = DType::kBFloat16;
constexpr int64_t kRows[] = {1, 8, 64, 256, 512, 2048, 16384};

std::vector<DeviceBuffer> buffers(int num_sets, int64_t count) {
  std::vector<DeviceBuffer> result;
  for (int i = 0; i < num_sets; ++i) result.emplace_back(kDType, count);
  return result;
}

void rms_norm(CudaBench& bench, int64_t n) {
  const DeviceBuffer weight(DType::kFloat32, n);
  for (const int64_t rows : kRows) {
    const std::string name = "rms_norm/" + std::to_string(n) + "/" + std::to_string(rows);
    if (!bench.wants(name)) continue;
    const double bytes = 2.0 * static_cast<double>(rows * n);
    const int num_sets = bench.sets_for(3 * bytes);
    const auto x = buffers(num_sets, rows * n);
    const auto residual = buffers(num_sets, rows * n);
    const auto out = buffers(num_sets, rows * n);
    bench.time(name, {.bytes = 4 * bytes}, num_sets, [&](int set) {
      const auto at = static_cast<size_t>(set);
      ops::cuda::rms_norm(bench.stream(), {kDType, x[at].data(), residual[at].data(),
                                           weight.as<float>(), 1e-6f, rows, n, out[at].data()});
    });
  }
}

void silu_and_mul(CudaBench& bench, int64_t inner) {
  for (const int64_t rows : kRows) {
    const std::string name = "silu_and_mul/" + std::to_string(inner) + "/" + std::to_string(rows);
    if (!bench.wants(name)) continue;
    const double bytes = 2.0 * static_cast<double>(rows * inner);
    const int num_sets = bench.sets_for(3 * bytes);
    const auto gate_up = buffers(num_sets, 2 * rows * inner);
    const auto out = buffers(num_sets, rows * inner);
    bench.time(name, {.bytes = 3 * bytes}, num_sets, [&](int set) {
      const auto at = static_cast<size_t>(set);
      ops::cuda::silu_and_mul(bench.stream(),
                              {kDType, gate_up[at].data(), rows, inner, out[at].data()});
    });
  }
}

void embedding(CudaBench& bench, int64_t hidden) {
  constexpr int64_t kVocab = 151936;
  const DeviceBuffer table(kDType, kVocab * hidden);
  std::mt19937 random(1);
  for (const int64_t rows : kRows) {
    const std::string name = "embedding/" + std::to_string(hidden) + "/" + std::to_string(rows);
    if (!bench.wants(name)) continue;
    const double bytes = 2.0 * static_cast<double>(rows * hidden);
    const int num_sets = bench.sets_for(2 * bytes);
    std::vector<DeviceBuffer> ids;
    for (int i = 0; i < num_sets; ++i) {
      std::vector<int32_t> values(static_cast<size_t>(rows));
      for (int32_t& id : values) id = static_cast<int32_t>(random() % kVocab);
      ids.push_back(DeviceBuffer::of(values));
    }
    const auto out = buffers(num_sets, rows * hidden);
    bench.time(name, {.bytes = 2 * bytes}, num_sets, [&](int set) {
      const auto at = static_cast<size_t>(set);
      ops::cuda::embedding(bench.stream(), {kDType, ids[at].as<int32_t>(), rows, table.data(),
                                            kVocab, hidden, 0, out[at].data()});
    });
  }
}

void run(CudaBench& bench) {
  for (const int64_t hidden : {1024, 4096}) {
    embedding(bench, hidden);
    rms_norm(bench, hidden);
    silu_and_mul(bench, 3 * hidden);
  }
}

const BenchGroup group("elementwise", run);

}  // namespace
}  // namespace quire::bench
