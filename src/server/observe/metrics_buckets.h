#pragma once
// The boundaries of the histograms' buckets: vLLM's, from vllm/v1/metrics/loggers.py. Dashboards
// that add up several servers need the same ones everywhere.
//
// Thread safety: pure functions.
#include <cstdint>
#include <vector>

namespace quire::server {

std::vector<double> first_token_buckets();      // time_to_first_token_seconds
std::vector<double> output_token_buckets();     // inter_token_latency_seconds and its kin
std::vector<double> request_latency_buckets();  // e2e, queue, prefill, decode and inference times
std::vector<double> iteration_token_buckets();  // iteration_tokens_total
std::vector<double> request_n_buckets();        // request_params_n

// 1, 2, 5, 10, 20, 50 ... up to `max_value`, which is >= 1.
std::vector<double> one_two_five_buckets(int64_t max_value);

}  // namespace quire::server
