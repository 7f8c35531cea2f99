#pragma once
// The numbers that Python's `random` module draws, so that a workload given there by a seed can be
// built here token for token.
//
// MT19937 (M. Matsumoto and T. Nishimura, 1998), seeded as CPython seeds it with an integer
// (init_by_array over the seed's 32-bit words), and CPython's randint: bits drawn until the value
// fits. Thread safety: one thread at a time.
#include <cstdint>
#include <random>

namespace quire {

class PythonRandom {
 public:
  // random.seed(seed).
  explicit PythonRandom(uint64_t seed);

  // random.getrandbits(bits), bits in [1, 64].
  uint64_t getrandbits(int bits);

  // random.randint(low, high): uniform in [low, high]; low <= high, fewer than 2^64 values.
  int64_t randint(int64_t low, int64_t high);

 private:
  std::mt19937 generator_;
};

}  // namespace quire
