#include "server/observe/metrics_buckets.h"

#include "base/check.h"

namespace quire::server {

std::vector<double> first_token_buckets() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,   0.75,
          1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160., 640.0, 2560.0};
}

std::vector<double> output_token_buckets() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
          0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
}

std::vector<double> request_latency_buckets() {
  return {0.3,  0.5,  0.8,  1.0,  1.5,  2.0,   2.5,   5.0,   10.0,  15.0,  20.0,
          30.0, 40.0, 50.0, 60.0, 120., 240.0, 480.0, 960.0, 1920., 7680.0};
}

std::vector<double> iteration_token_buckets() {
  return {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
}

std::vector<double> request_n_buckets() {
  return {1, 2, 5, 10, 20};
}

std::vector<double> one_two_five_buckets(int64_t max_value) {
  check(max_value >= 1, "buckets of token counts need room for one token");
  std::vector<double> buckets;
  // A double holds every one of these exactly, and the last ends the loop before int64_t would
  // overflow.
  for (double power = 1;; power *= 10) {
    for (const double mantissa : {1.0, 2.0, 5.0}) {
      const double boundary = mantissa * power;
      if (boundary > static_cast<double>(max_value)) return buckets;
      buckets.push_back(boundary);
    }
  }
}

}  // namespace quire::server
