#include "ops/machine_ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "core/buffer.h"
#include "ops/cpu/peak_loops.h"

namespace quire::ops {
namespace {

constexpr size_t kReadBytes = size_t{256} << 20;  // far more than any cache
constexpr size_t kReadTaskBytes = size_t{1} << 20;
constexpr int kReadRounds = 4;
constexpr int64_t kPeakSteps = 200'000;

// Seconds of the fastest of a few calls: what disturbs one only makes it slower.
double fastest(int rounds, const std::function<void()>& body) {
  double best = 1e30;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

using PeakLoop = double (*)(int64_t steps, float* sink);

PeakLoop peak_loop_of_integers(Isa isa) {
  if (isa == Isa::kScalar) return scalar::peak_i8;
  return isa == Isa::kAvx2 ? avx2::peak_i8 : avx512vnni::peak_i8;
}

PeakLoop peak_loop(Isa isa, DType dtype) {
  if (dtype == DType::kUInt8) return peak_loop_of_integers(isa);
  if (isa == Isa::kAvx512) return dtype == DType::kBFloat16 ? avx512::peak_bf16 : avx512::peak_f32;
  return isa == Isa::kScalar ? scalar::peak_f32 : avx2::peak_f32;
}

}  // namespace

double measure_read_gb_s(Stream& stream) {
  const Buffer buffer(kReadBytes);
  std::memset(buffer.data(), 1, kReadBytes);
  const auto threads = static_cast<size_t>(stream.pool().size());
  std::vector<uint64_t> sums(threads * 8);  // a cache line each
  const double seconds = fastest(kReadRounds, [&] {
    stream.pool().parallel_for(kReadBytes / kReadTaskBytes, [&](int64_t task, int thread) {
      const auto* words = reinterpret_cast<const uint64_t*>(
          buffer.data() + static_cast<size_t>(task) * kReadTaskBytes);
      uint64_t sum[8] = {};
      for (size_t i = 0; i < kReadTaskBytes / sizeof(uint64_t); i += 8) {
        for (size_t j = 0; j < 8; ++j) sum[j] += words[i + j];
      }
      for (uint64_t part : sum) sums[static_cast<size_t>(thread) * 8] += part;
    });
  });
  // Every byte is 1, so a sum that is wrong says that something was not read.
  uint64_t total = 0;
  for (uint64_t part : sums) total += part;
  check(total == uint64_t{0x0101010101010101} * (kReadBytes / sizeof(uint64_t)) * kReadRounds,
        "the read benchmark did not read all of its buffer");
  return static_cast<double>(kReadBytes) / seconds * 1e-9;
}

double measure_peak_gflops(Stream& stream, DType dtype) {
  const PeakLoop loop = peak_loop(stream.isa(), dtype);
  const int threads = stream.pool().size();
  std::vector<float> sinks(static_cast<size_t>(threads) * 16);
  double operations = 0;
  const double seconds = fastest(5, [&] {
    std::vector<double> done(static_cast<size_t>(threads));
    stream.pool().parallel_for(threads, [&](int64_t task, int) {
      done[static_cast<size_t>(task)] = loop(kPeakSteps, &sinks[static_cast<size_t>(task) * 16]);
    });
    operations = 0;
    for (double part : done) operations += part;
  });
  return operations / seconds * 1e-9;
}

MachineCeilings measure_ceilings(Stream& stream, DType dtype) {
  return {.read_gb_s = measure_read_gb_s(stream),
          .peak_gflops = measure_peak_gflops(stream, dtype)};
}

}  // namespace quire::ops
