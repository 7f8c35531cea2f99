#pragma once
// Runs a load: sends requests when the schedule says, reads their answers, measures.
#include <functional>
#include <vector>

#include "loadgen/dispatcher.h"
#include "loadgen/http_options.h"
#include "loadgen/measurements.h"
#include "loadgen/request.h"

namespace quire::loadgen {

struct LoadOptions {
  HttpOptions http;
  Schedule schedule;
  bool retry_rejected = false;    // after HTTP 429, for as long as http.timeout_s allows
  bool expect_identical = false;  // requests with the same body must give the same text
  int stop_fd = -1;               // ends the run as soon as it is readable; none if negative
};

struct LoadReport {
  Measurements measurements;
  double duration_s = 0;  // from the first request to the end of the last
  int64_t peak_concurrency = 0;
  bool stopped = false;         // by stop_fd
  int64_t num_interrupted = 0;  // requests that this cut
};

struct LoadProgress {
  const Measurements& measurements;
  int64_t num_running;
  double elapsed_s;
};

// Sends `requests` in turn, from the first again after the last, until the schedule ends. Calls
// `on_progress` about ten times a second, unless it is empty. Throws Error if the process may not
// have a file descriptor for each connection, or the machine fails. Servers' failures are no errors
// here: the report has them.
LoadReport run_load(const std::vector<LoadRequest>& requests, const LoadOptions& options,
                    const std::function<void(const LoadProgress&)>& on_progress);

}  // namespace quire::loadgen
