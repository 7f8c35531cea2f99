#pragma once
// Limits on what one client, and all of them together, may use of an HTTP server.
//
// Thread safety: a plain value.
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace quire::http {

struct Limits {
  std::size_t max_header_bytes = 32 << 10;  // request line and headers: 431 beyond
  std::size_t max_body_bytes = 32 << 20;    // 413 beyond
  // Of all bodies that come or wait for an answer: 503 beyond. Of several from one address at most
  // half: 429 beyond.
  std::size_t max_receiving_bytes = 1 << 30;
  std::size_t max_pipelined_bytes = 64 << 10;  // received while an answer is being made
  std::size_t max_buffered_bytes = 8 << 20;    // queued for a client that reads slowly: cut off
  int64_t max_connections = 8192;              // beyond, new ones get a 503 and are closed
  std::chrono::milliseconds header_timeout{
      10'000};                                      // from the first byte to the end of the headers
  std::chrono::milliseconds body_timeout{60'000};   // for the whole body
  std::chrono::milliseconds idle_timeout{75'000};   // between requests, and before the first
  std::chrono::milliseconds write_timeout{30'000};  // without any progress of a write
};

}  // namespace quire::http
