#pragma once
// Shared by all connections of a server.
//
// Thread safety: the counters, flags and receiving_bytes from any thread; the rest does not change.
#include <atomic>
#include <string>

#include "http/receiving_bytes.h"
#include "http/server.h"

namespace quire::http {

struct ServerContext {
  ServerContext(Config server_config, Handler request_handler)
      : config(std::move(server_config)), handler(std::move(request_handler)) {}

  const Config config;
  const Handler handler;

  std::atomic<bool> stopping{false};  // answers say "Connection: close", idle connections end
  std::atomic<bool> closing{false};   // every connection ends
  std::atomic<int64_t> num_active{0};
  ReceivingBytes receiving_bytes;

  std::atomic<int64_t> open_connections{0};
  std::atomic<int64_t> accepted_connections{0};
  std::atomic<int64_t> rejected_connections{0};
  std::atomic<int64_t> malformed_requests{0};
  std::atomic<int64_t> timed_out_connections{0};
  std::atomic<int64_t> dropped_slow_readers{0};

  // The owner's body for an error; a plain sentence where the owner gives none.
  Response error_response(int status, const std::string& message) const;
};

}  // namespace quire::http
