#pragma once
// What a load run measured: counts, latencies, errors by kind.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "loadgen/latency_histogram.h"
#include "loadgen/request.h"
#include "loadgen/text_checker.h"

namespace quire::loadgen {

class Measurements {
 public:
  // Kinds of errors beyond this number are counted together, and so are mismatches that are not
  // shown.
  static constexpr size_t kMaxErrorKinds = 50;
  static constexpr size_t kMaxShownMismatches = 10;

  // A request has ended. Only those that succeeded count in latencies and tokens.
  void add(const LoadRequest& request, const RequestResult& result);
  // A request's text was wrong: it counts as failed although its stream was complete.
  void add_mismatch(TextMismatch mismatch);
  // A rejected request was sent again.
  void add_retry() { ++retries_; }

  int64_t completed() const { return completed_; }
  int64_t failed() const { return failed_; }
  int64_t rejected() const { return rejected_; }
  int64_t retries() const { return retries_; }
  int64_t mismatches() const { return mismatches_; }
  int64_t ended() const { return completed_ + failed_ + rejected_; }

  int64_t input_tokens() const { return input_tokens_; }
  int64_t output_tokens() const { return output_tokens_; }
  int64_t cached_tokens() const { return cached_tokens_; }
  // Requests without the server's count of output tokens, where events were counted instead; and
  // requests without its count of input tokens.
  int64_t counted_by_events() const { return counted_by_events_; }
  int64_t without_input_tokens() const { return without_input_tokens_; }

  const LatencyHistogram& ttft() const { return ttft_; }
  const LatencyHistogram& tpot() const { return tpot_; }  // of requests with two tokens or more
  const LatencyHistogram& itl() const { return itl_; }
  const LatencyHistogram& e2el() const { return e2el_; }

  const std::map<std::string, int64_t>& errors() const { return errors_; }
  const std::vector<TextMismatch>& shown_mismatches() const { return shown_mismatches_; }

 private:
  void add_succeeded(const LoadRequest& request, const RequestResult& result);
  void add_error(const std::string& message);

  int64_t completed_ = 0;
  int64_t failed_ = 0;
  int64_t rejected_ = 0;
  int64_t retries_ = 0;
  int64_t mismatches_ = 0;
  int64_t input_tokens_ = 0;
  int64_t output_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t counted_by_events_ = 0;
  int64_t without_input_tokens_ = 0;
  LatencyHistogram ttft_;
  LatencyHistogram tpot_;
  LatencyHistogram itl_;
  LatencyHistogram e2el_;
  std::map<std::string, int64_t> errors_;
  std::vector<TextMismatch> shown_mismatches_;
};

}  // namespace quire::loadgen
