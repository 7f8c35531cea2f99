#pragma once
// When requests arrive: gaps drawn from a gamma distribution, as `vllm bench serve` does.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <random>

namespace quire::loadgen {

class Arrivals {
 public:
  // `rate` requests a second, or infinity: all at once. `burstiness` is the shape of the gamma
  // distribution: 1 is a Poisson process, less comes in bursts, more is more even. Both are above
  // 0. The same seed gives the same times.
  Arrivals(double rate, double burstiness, uint64_t seed);

  // Seconds from the start to the next arrival, the first at 0; never less than the one before.
  double next();

 private:
  bool all_at_once_;
  bool first_ = true;
  double time_s_ = 0;
  std::mt19937_64 random_;
  std::gamma_distribution<double> gap_s_;
};

}  // namespace quire::loadgen
