#include "ops/machine_ceilings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "ops/cpu/peak_loops.h"

namespace quire::ops {
namespace {

constexpr size_t kReadBytes = size_t{256} << 20;  // far more than any cache
constexpr size_t kReadTaskBytes = size_t{1} << 20;
constexpr size_t kReadRoundBytes = size_t{64} << 20;  // what a round reads, one after the other
constexpr int64_t kPeakSteps = 200'000;
// Rounds of a millisecond or a few are repeated for so long: a clock that was slow while the
// processor was idle has risen by then, and some rounds ran beside no other work.
constexpr std::chrono::milliseconds kMeasuredTime{250};
constexpr int kLeastRounds = 5;

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

struct Rounds {
  double fastest_s = std::numeric_limits<double>::infinity();
  int count = 0;
};

// What disturbs a round only makes it slower, so the fastest counts. `body` returns its seconds.
Rounds measure_rounds(const std::function<double()>& body) {
  const auto end = Clock::now() + kMeasuredTime;
  Rounds rounds;
  while (rounds.count < kLeastRounds || Clock::now() < end) {
    rounds.fastest_s = std::min(rounds.fastest_s, body());
    ++rounds.count;
  }
  return rounds;
}

// Runs body(thread) once on each thread of the pool, all beginning together; returns the seconds
// from there until the last ends. So the time in which threads wake up is not counted.
double time_together(ThreadPool& pool, const std::function<void(size_t thread)>& body) {
  const auto threads = static_cast<size_t>(pool.size());
  std::atomic<size_t> arrived = 0;
  std::vector<Clock::time_point> starts(threads), ends(threads);
  pool.parallel_for(pool.size(), [&](int64_t task, int) {
    ++arrived;
    while (arrived < threads) std::this_thread::yield();
    const auto thread = static_cast<size_t>(task);
    starts[thread] = Clock::now();
    body(thread);
    ends[thread] = Clock::now();
  });
  return seconds_between(*std::min_element(starts.begin(), starts.end()),
                         *std::max_element(ends.begin(), ends.end()));
}

using PeakLoop = double (*)(int64_t steps, float* sink);

PeakLoop peak_loop_of_integers(Isa isa) {
  if (isa == Isa::kScalar) return scalar::peak_i8;
  if (isa == Isa::kAvx2) return avx2::peak_i8;
  if (isa == Isa::kAvxVnni) return avxvnni::peak_i8;
  return isa == Isa::kAmx ? amx::peak_i8 : avx512vnni::peak_i8;
}

PeakLoop peak_loop(Isa isa, DType dtype) {
  if (dtype == DType::kUInt8) return peak_loop_of_integers(isa);
  if (isa == Isa::kAmx && dtype == DType::kBFloat16) return amx::peak_bf16;
  if (isa == Isa::kAvx512 || isa == Isa::kAmx)
    return dtype == DType::kBFloat16 ? avx512::peak_bf16 : avx512::peak_f32;
  return isa == Isa::kScalar ? scalar::peak_f32 : avx2::peak_f32;
}

}  // namespace

double measure_read_gb_s(Stream& stream) {
  const Buffer buffer(kReadBytes);
  std::memset(buffer.data(), 1, kReadBytes);
  const auto threads = static_cast<size_t>(stream.pool().size());
  std::vector<uint64_t> sums(threads * 8);  // a cache line each
  size_t next = 0;
  const Rounds rounds = measure_rounds([&] {
    const std::byte* const first =
        buffer.data() + std::exchange(next, (next + kReadRoundBytes) % kReadBytes);
    const auto start = Clock::now();
    stream.pool().parallel_for(kReadRoundBytes / kReadTaskBytes, [&](int64_t task, int thread) {
      const auto* words =
          reinterpret_cast<const uint64_t*>(first + static_cast<size_t>(task) * kReadTaskBytes);
      uint64_t sum[8] = {};
      for (size_t i = 0; i < kReadTaskBytes / sizeof(uint64_t); i += 8) {
        for (size_t j = 0; j < 8; ++j) sum[j] += words[i + j];
      }
      for (uint64_t part : sum) sums[static_cast<size_t>(thread) * 8] += part;
    });
    return seconds_between(start, Clock::now());
  });
  // Every byte is 1, so a sum that is wrong says that something was not read.
  uint64_t total = 0;
  for (uint64_t part : sums) total += part;
  const uint64_t expected = uint64_t{0x0101010101010101} * (kReadRoundBytes / sizeof(uint64_t));
  check(total == expected * static_cast<uint64_t>(rounds.count),
        "the read benchmark did not read all of its buffer");
  return static_cast<double>(kReadRoundBytes) / rounds.fastest_s * 1e-9;
}

double measure_peak_gflops(Stream& stream, DType dtype) {
  const PeakLoop loop = peak_loop(stream.isa(), dtype);
  const auto threads = static_cast<size_t>(stream.pool().size());
  std::vector<float> sinks(threads * 16);
  std::vector<double> operations(threads);
  const Rounds rounds = measure_rounds([&] {
    return time_together(stream.pool(), [&](size_t thread) {
      operations[thread] = loop(kPeakSteps, &sinks[thread * 16]);
    });
  });
  return std::accumulate(operations.begin(), operations.end(), 0.0) / rounds.fastest_s * 1e-9;
}

MachineCeilings measure_ceilings(Stream& stream, DType dtype) {
  return {.read_gb_s = measure_read_gb_s(stream),
          .peak_gflops = measure_peak_gflops(stream, dtype)};
}

}  // namespace quire::ops
