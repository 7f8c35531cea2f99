#pragma once
// For tests: a client of blocking sockets that sends any bytes, right or wrong, and a server whose
// handler is a table of paths. Waits are bounded only so that a hang fails.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "http/server.h"

namespace quire::http {

// Polls until `condition` holds; false after half a minute.
template <class Condition>
bool eventually(Condition condition) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

struct TestResponse {
  int status = 0;                                // 0: the connection ended before a whole head
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string body{};
  bool whole = false;  // the body's end was seen, as its framing says
};

class TestClient {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    std::string from{};      // the client's own, IPv4; empty: the system's choice
    int receive_buffer = 0;  // bytes; 0: the system's choice
  };
  explicit TestClient(uint16_t port) : TestClient(port, Options()) {}
  TestClient(uint16_t port, const Options& options);
  virtual ~TestClient();
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  // False once the server does not take it.
  bool send(std::string_view bytes);
  bool get(std::string_view path);
  bool post(std::string_view path, std::string_view body);
  // Reads one answer. `head_only`: to a HEAD request.
  TestResponse response(bool head_only = false);
  TestResponse fetch(std::string_view path);
  // Reads until what has been read contains `text`, and takes everything up to its end.
  bool read_past(std::string_view text);
  // All that comes until the server ends the connection; `ended` says that it did.
  std::string read_to_end();
  bool ended() const { return ended_; }

  void end_output();  // FIN; the client still reads
  void reset();       // RST

 protected:
  virtual long read_some(char* data, std::size_t size);
  virtual long write_some(const char* data, std::size_t size);
  int fd() const { return fd_; }

 private:
  bool fill();
  bool read_line(std::string& line);
  bool read_exactly(std::size_t size, std::string& body);
  bool read_chunks(std::string& body);

  int fd_ = -1;
  bool ended_ = false;
  std::string input_;
};

// A server on a free port of the loopback whose requests go to `routes` by their path; others get a
// 404. Requests on "/echo" are answered with their method, path, query and body.
class TestServer {
 public:
  using Route = std::function<void(std::shared_ptr<Exchange>)>;

  explicit TestServer(std::map<std::string, Route> routes = {}, Config config = Config());

  uint16_t port() const { return server_->port(); }
  Server& server() { return *server_; }
  Stats stats() const { return server_->stats(); }
  void destroy() { server_.reset(); }

 private:
  std::map<std::string, Route> routes_;
  std::unique_ptr<Server> server_;
};

// A configuration for tests: port 0, errors as {"status": N}.
Config test_config();

}  // namespace quire::http
