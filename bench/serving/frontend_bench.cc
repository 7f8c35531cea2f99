// How many streamed tokens a second the front end carries on one core: HTTP, API, formatting and
// writing, with an engine that computes nothing and clients that only count.
//
//   frontend_bench [STREAMS [TOKENS]]      64 streams of 20,000 tokens each by default
//
// Prints tokens for each second of the I/O thread's CPU time: with an engine that waits until each
// token was fetched (one token an event, the smallest possible), and with engines that make a fixed
// number of tokens a second, fetched or not. Then the time that the server adds to the first token.
// The clients run on a thread of their own; both need a core.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http/server.h"
#include "quire/error.h"
#include "server/mock_engine.h"
#include "server/service.h"

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

double thread_cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class FrontEnd {
 public:
  explicit FrontEnd(EnginePort& engine) : log_({.fd = STDERR_FILENO}) {
    ServiceConfig config;
    config.admission.max_num_seqs = 4096;
    config.access_log = false;
    config.metrics.max_model_len = 1 << 20;
    ModelInfo model;
    model.id = "mock";
    model.max_model_len = 1 << 20;
    model.vocab_size = 1000;
    http::Config http;
    http.port = 0;
    http_ = std::make_unique<http::Server>(
        http, [this](auto exchange) { service_->handle(std::move(exchange)); });
    service_ = std::make_unique<Service>(
        config, model,
        ServiceEnvironment{
            .engine = engine,
            .log = log_,
            .post = [this](std::function<void()> task) { http_->post(std::move(task)); },
            .http_stats = [this] { return http_->stats(); },
            .engine_failed = [](const std::string&) {}});
    http_->start();
  }
  ~FrontEnd() {
    http_->close();
    std::promise<void> ended;
    http_->post([&ended] { ended.set_value(); });
    ended.get_future().wait();
  }
  uint16_t port() const { return http_->port(); }

  double io_cpu_s() {
    std::promise<double> result;
    http_->post([&result] { result.set_value(thread_cpu_s()); });
    return result.get_future().get();
  }

 private:
  AccessLog log_;
  std::unique_ptr<http::Server> http_;
  std::unique_ptr<Service> service_;
};

int connect_to(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    throw Error("cannot connect to the server");
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

void send_request(int fd, int64_t max_tokens) {
  const std::string body = fmt::format(
      R"({{"prompt": [1, 2, 3], "max_tokens": {}, "stream": true, "ignore_eos": true}})",
      max_tokens);
  const std::string request = fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
  if (send(fd, request.data(), request.size(), 0) != static_cast<ssize_t>(request.size())) {
    throw Error("the request was not taken whole");
  }
}

struct Counts {
  int64_t tokens = 0;
  int64_t events = 0;
  int64_t reads = 0;
};

// One stream as its client sees it. Words and events are counted in the raw bytes; a chunk's frame
// may cut a pattern, which is too rare to matter and checked against the whole below.
class Client {
 public:
  Client(uint16_t port, int64_t max_tokens) : fd_(connect_to(port)) {
    send_request(fd_, max_tokens);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int fd() const { return fd_; }
  // False once the stream has ended.
  bool read(std::vector<char>& buffer, Counts& counts) {
    const ssize_t count = recv(fd_, buffer.data(), buffer.size(), 0);
    if (count <= 0) throw Error("the server closed a stream early");
    ++counts.reads;
    const std::string_view text(buffer.data(), static_cast<size_t>(count));
    for (size_t at = text.find(" word"); at != text.npos; at = text.find(" word", at + 5)) {
      ++counts.tokens;
    }
    for (size_t at = text.find("data: {"); at != text.npos; at = text.find("data: {", at + 7)) {
      ++counts.events;
    }
    return text.find("data: [DONE]") == text.npos;
  }

 private:
  int fd_;
};

Counts read_all(std::vector<std::unique_ptr<Client>> clients) {
  Counts counts;
  std::vector<char> buffer(256 << 10);
  std::vector<pollfd> polls;
  while (!clients.empty()) {
    polls.clear();
    for (const auto& client : clients) {
      polls.push_back({.fd = client->fd(), .events = POLLIN, .revents = 0});
    }
    poll(polls.data(), polls.size(), -1);
    for (size_t i = polls.size(); i-- > 0;) {
      if ((polls[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      if (!clients[i]->read(buffer, counts)) clients.erase(clients.begin() + static_cast<long>(i));
    }
  }
  return counts;
}

// `rate`: the engine's tokens a second; 0: it waits for each to be fetched.
void measure_throughput(double rate, int64_t num_streams, int64_t num_tokens) {
  MockEngine engine(" word", rate > 0 ? MockEngine::Pace::kFree : MockEngine::Pace::kLockstep,
                    rate > 0 ? static_cast<double>(num_streams) / rate : 0);
  FrontEnd front(engine);
  const double cpu_before = front.io_cpu_s();
  const Clock::time_point begin = Clock::now();
  std::vector<std::unique_ptr<Client>> clients;
  for (int64_t i = 0; i < num_streams; ++i) {
    clients.push_back(std::make_unique<Client>(front.port(), num_tokens));
  }
  const Counts counts = read_all(std::move(clients));
  const double elapsed = seconds_since(begin);
  const double cpu = front.io_cpu_s() - cpu_before;
  const auto tokens = static_cast<double>(num_streams * num_tokens);
  fmt::print("\n{} streams, {} tokens, the engine {} (the clients saw {:.2f} % of them)\n",
             num_streams, num_streams * num_tokens,
             rate > 0 ? fmt::format("gives {:.0f} tokens/s", rate) : "waits for each to be fetched",
             100 * static_cast<double>(counts.tokens) / tokens);
  fmt::print("busy share of the I/O thread   {:>12.2f}\n", cpu / elapsed);
  fmt::print("tokens/s of wall time          {:>12.0f}\n", tokens / elapsed);
  fmt::print("tokens/s a core of the server  {:>12.0f}\n", tokens / cpu);
  fmt::print("events/s a core of the server  {:>12.0f}\n",
             static_cast<double>(counts.events) / cpu);
  fmt::print("tokens an event {:.2f}, events a read {:.2f}\n",
             static_cast<double>(counts.tokens) / static_cast<double>(counts.events),
             static_cast<double>(counts.events) / static_cast<double>(counts.reads));
}

// The engine's first token is there at once, so all of the time is the front end's.
void measure_first_token(int64_t num_requests) {
  MockEngine engine;
  FrontEnd front(engine);
  std::vector<double> times;
  std::vector<char> buffer(64 << 10);
  for (int64_t i = 0; i < num_requests; ++i) {
    const int fd = connect_to(front.port());
    const Clock::time_point begin = Clock::now();
    send_request(fd, 1);
    std::string seen;
    while (seen.find(" word") == std::string::npos) {
      const ssize_t count = recv(fd, buffer.data(), buffer.size(), 0);
      if (count <= 0) throw Error("the server closed a stream early");
      seen.append(buffer.data(), static_cast<size_t>(count));
    }
    times.push_back(seconds_since(begin));
    close(fd);
  }
  std::sort(times.begin(), times.end());
  const auto at = [&times](double share) {
    return 1e3 * times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
  };
  fmt::print("first token through the front end, ms: median {:.3f}, p90 {:.3f}, p99 {:.3f}\n",
             at(0.5), at(0.9), at(0.99));
}

}  // namespace
}  // namespace quire::server

int main(int argc, char** argv) {
  const int64_t num_streams = argc > 1 ? std::atoll(argv[1]) : 64;
  const int64_t num_tokens = argc > 2 ? std::atoll(argv[2]) : 20'000;
  try {
    quire::server::measure_throughput(0, num_streams, num_tokens / 10);
    for (const double rate : {100e3, 300e3, 600e3}) {
      quire::server::measure_throughput(rate, num_streams, num_tokens);
    }
    quire::server::measure_first_token(2000);
  } catch (const quire::Error& error) {
    fmt::print(stderr, "frontend_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
