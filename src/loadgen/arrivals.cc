#include "loadgen/arrivals.h"

#include <cmath>

#include "base/check.h"

namespace quire::loadgen {

Arrivals::Arrivals(double rate, double burstiness, uint64_t seed)
    : all_at_once_(std::isinf(rate)), random_(seed) {
  check(rate > 0 && burstiness > 0, "the rate and the burstiness of arrivals are above 0");
  if (!all_at_once_) {
    gap_s_ = std::gamma_distribution<double>(burstiness, 1 / (rate * burstiness));
  }
}

double Arrivals::next() {
  if (all_at_once_) return 0;
  if (!first_) time_s_ += gap_s_(random_);
  first_ = false;
  return time_s_;
}

}  // namespace quire::loadgen
