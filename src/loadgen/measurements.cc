#include "loadgen/measurements.h"

#include <utility>

namespace quire::loadgen {

void Measurements::add(const LoadRequest& request, const RequestResult& result) {
  switch (result.outcome) {
    case Outcome::kSucceeded:
      add_succeeded(request, result);
      return;
    case Outcome::kFailed:
      ++failed_;
      break;
    case Outcome::kRejected:
      ++rejected_;
      break;
  }
  add_error(result.error);
}

void Measurements::add_mismatch(TextMismatch mismatch) {
  ++failed_;
  ++mismatches_;
  add_error("the text is not what was expected");
  if (shown_mismatches_.size() < kMaxShownMismatches) {
    shown_mismatches_.push_back(std::move(mismatch));
  }
}

void Measurements::add_succeeded(const LoadRequest& request, const RequestResult& result) {
  ++completed_;
  const std::optional<int64_t> input_tokens =
      result.input_tokens ? result.input_tokens : request.num_prompt_tokens;
  if (!input_tokens) ++without_input_tokens_;
  input_tokens_ += input_tokens.value_or(0);
  cached_tokens_ += result.cached_tokens.value_or(0);
  if (!result.output_tokens) ++counted_by_events_;
  const int64_t output_tokens = result.output_tokens.value_or(result.num_output_events);
  output_tokens_ += output_tokens;

  ttft_.add(result.ttft_s);
  e2el_.add(result.total_s);
  for (const float gap_s : result.itl_s) itl_.add(gap_s);
  if (output_tokens > 1) {
    tpot_.add((result.last_output_s - result.ttft_s) / static_cast<double>(output_tokens - 1));
  }
}

void Measurements::add_error(const std::string& message) {
  const bool known = errors_.contains(message);
  ++errors_[known || errors_.size() < kMaxErrorKinds ? message : "other errors"];
}

}  // namespace quire::loadgen
