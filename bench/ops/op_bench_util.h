#pragma once
// What the op benches share: a stream with the machine's threads, its ceilings, random data.
//
//   QUIRE_BENCH_THREADS  threads (default: the physical cores)
//   QUIRE_CPU_ISA        scalar, avx2, avxvnni, avx512vnni, avx512 or amx (default: the best
//                        that the CPU has)
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "core/stream.h"
#include "ops/machine_ceilings.h"

namespace quire::bench {

inline int thread_count() {
  const char* given = std::getenv("QUIRE_BENCH_THREADS");
  return given != nullptr ? std::stoi(given) : cpu_topology().num_physical_cores;
}

inline Isa chosen_isa() {
  const char* given = std::getenv("QUIRE_CPU_ISA");
  if (given == nullptr) return best_isa();
  const Isa isa = isa_from_name(given).value();
  if (!supports(isa)) throw std::runtime_error("QUIRE_CPU_ISA: this CPU has no such kernels");
  return isa;
}

// One for each benchmark, with the ceilings measured just before it: neighbours come and go.
struct Machine {
  explicit Machine(DType dtype)
      : pool(thread_count(), cpu_topology().cpus),
        stream(pool, chosen_isa()),
        ceilings(ops::measure_ceilings(stream, dtype)) {}

  ThreadPool pool;
  Stream stream;
  ops::MachineCeilings ceilings;
};

inline std::vector<float> random_values(int64_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

// Counters: what was achieved, its share of the ceiling in percent, and the least microseconds that
// reading and arithmetic would take at the ceilings. `bytes` and `flops` are of one iteration.
inline void report(benchmark::State& state, const Machine& machine, double bytes, double flops) {
  using benchmark::Counter;
  const auto rate = [&state](double amount) {
    return Counter(amount * static_cast<double>(state.iterations()), Counter::kIsRate);
  };
  state.counters["GB/s"] = rate(bytes * 1e-9);
  state.counters["GFLOP/s"] = rate(flops * 1e-9);
  state.counters["%read"] = rate(bytes * 1e-9 / machine.ceilings.read_gb_s * 100);
  state.counters["read_us"] = bytes * 1e-3 / machine.ceilings.read_gb_s;
  state.counters["peak_us"] = flops * 1e-3 / machine.ceilings.peak_gflops;
  state.counters["%peak"] = rate(flops * 1e-9 / machine.ceilings.peak_gflops * 100);
}

}  // namespace quire::bench
