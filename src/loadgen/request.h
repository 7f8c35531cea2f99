#pragma once
// A request of a load run, and its result.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace quire::loadgen {

struct LoadRequest {
  std::string path;  // of the endpoint, e.g. "/v1/completions"
  std::string body;  // JSON
  // Of the prompt, where they are known without the server.
  std::optional<int64_t> num_prompt_tokens;
  std::optional<std::string> expected_text;
};

enum class Outcome {
  kSucceeded,
  kFailed,
  kRejected,  // HTTP 429
};

// Times are in seconds from when the request was sent. If the request did not succeed, only
// `outcome`, `error` and `retry_after_s` are meaningful.
struct RequestResult {
  Outcome outcome = Outcome::kFailed;
  std::string error;  // one line
  std::optional<double> retry_after_s;
  double ttft_s = 0;         // to the first event with output
  double last_output_s = 0;  // to the last
  double total_s = 0;        // to the end of the stream
  std::vector<float> itl_s;  // between events with output
  int64_t num_output_events = 0;
  // As the server counts them, if it does.
  std::optional<int64_t> input_tokens;
  std::optional<int64_t> output_tokens;
  std::optional<int64_t> cached_tokens;
  std::string text;  // if it was asked for
};

}  // namespace quire::loadgen
