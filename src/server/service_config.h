#pragma once
// The operator's settings of the service.
//
// Thread safety: a plain value.
#include <cstdint>
#include <string>
#include <vector>

#include "parsers/parser_formats.h"
#include "server/admission.h"
#include "server/client_weights.h"
#include "server/doors.h"
#include "server/key_limits.h"
#include "server/observe/metrics.h"
#include "server/observe/request_log.h"
#include "server/resumable_streams.h"

namespace quire::server {

struct ServiceConfig {
  AdmissionConfig admission{};
  double max_queue_time_s = 0;  // 0: no limit
  std::vector<std::string> api_keys{};
  KeyLimitTable key_limits{};
  DoorConfig doors{};
  bool share_cache_between_keys = false;  // --prefix-cache-scope global
  ClientWeights client_weights{};
  std::vector<std::string> allowed_origins{};  // CORS; "*": any; empty: off
  bool parse_special_tokens = false;           // written out in messages: as EngineConfig's
  OutputFormats formats{};
  MetricsConfig metrics{};
  bool access_log = true;     // a line for each request
  bool log_requests = false;  // a line with all facts for each generation, whatever access_log says
  RequestLogConfig request_log{};
  ResumableConfig resumable{};
  int num_workers = 2;  // threads that parse, render and tokenise
  // Threads that compile what answers have to be: so many for what is quick, and for the rest.
  int num_compilers = 4;
  // Where clients may load adapters from (--lora-dir); empty: from any folder.
  std::string lora_dir{};
  // The most names of adapters at a time.
  size_t max_adapter_names = 10'000;
  // Bytes that requests may take together, and the most bytes of a whole answer.
  int64_t max_server_memory = int64_t{1} << 30;
  int64_t max_response_bytes = int64_t{512} << 20;
};

}  // namespace quire::server
