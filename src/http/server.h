#pragma once
// An HTTP/1.1 server: keep-alive, pipelining one request at a time, TLS, and limits on everything
// that a client may take.
//
// An error of a client (a bad chunk size, too many headers, a body too large, TLS to a plain port,
// silence) ends only its connection, with the matching 4xx where HTTP allows an answer.
// Config::error_response makes the error bodies, so that they look like the API's own.
//
// A client that closes its sending side while it waits for an answer counts as gone: its request is
// cancelled (Exchange::on_closed). To notice this the server keeps a read under way. Bytes that
// come early (pipelined requests) are kept up to Limits::max_pipelined_bytes. Beyond that the
// server reads no more until it has answered enough requests, and checks from time to time whether
// the client is there.
//
// Thread safety: start(), stop_accepting(), reload_tls(), close() and the accessors from any
// thread.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/memory_account.h"
#include "http/exchange.h"
#include "http/limits.h"

namespace quire::http {

struct Config {
  std::string host = "127.0.0.1";      // a name or an address, IPv4 or IPv6
  uint16_t port = 8000;                // 0: any free one
  std::string tls_certificate_file{};  // PEM, the chain; both or none
  std::string tls_key_file{};          // PEM
  int threads = 1;                     // I/O threads, >= 1
  Limits limits{};
  // The answer to bytes that do not become a request: the status, and a sentence with the reason.
  std::function<Response(int status, const std::string& message)> error_response{};
  // Whether the body of a request should be read; asked on an I/O thread when the head has come and
  // the body has not. If not, the handler gets the request without its body, and the connection
  // ends after the answer. Without this function every body is read.
  std::function<bool(const Request& head)> wants_body{};
  // The account that bodies are charged to while they come in; asked on an I/O thread for each
  // body. A body for which it has no room is refused, and the connection ends: with 413 if the
  // account could never have it, else with 429. So is one where several bodies of its client's
  // address would have more than half of the account. The last piece is not refused but may be
  // missing from the charge: the handler answers that. Without this function no body is charged.
  std::function<std::shared_ptr<MemoryAccount>()> body_account{};
};

// Called on an I/O thread for each request; must not block. If it throws, its request gets a 500.
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

struct Stats {
  int64_t open_connections = 0;
  int64_t accepted_connections = 0;  // since the start
  int64_t rejected_connections = 0;  // over max_connections
  int64_t malformed_requests = 0;
  int64_t timed_out_connections = 0;
  int64_t dropped_slow_readers = 0;
};

class Server {
 public:
  // Binds and listens, but accepts nothing before start(). Throws Error: the port is taken, the
  // host unknown, a certificate unreadable or not matching its key.
  Server(Config config, Handler handler);
  // close(), then waits for the I/O threads. Not to be called on one of them.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void start();
  // The port that it listens on.
  uint16_t port() const;
  // New connections are refused, idle ones closed; answers under way go on, with
  // "Connection: close". Returns at once.
  void stop_accepting();
  // Requests whose answers the system has not taken completely yet, and whose clients have not
  // gone.
  int64_t num_active() const;
  // Reads the certificate and its key again, for connections accepted from now on. Without TLS: no
  // effect. Throws Error where they cannot be used; the old ones stay.
  void reload_tls();
  // Cuts every connection off. Returns at once.
  void close();
  // Runs `task` on the first I/O thread, never inside this call. Where that is the only one, every
  // write() of the task goes straight to its socket. Must not throw.
  void post(std::function<void()> task);
  Stats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::http
