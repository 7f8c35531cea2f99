// Clients that behave and clients that do not, all at once, on several I/O threads, with the
// answers written by threads of their own. The healthy ones must not notice; the thread sanitizer
// watches.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "http/server.h"
#include "http/test_client.h"

namespace quire::http {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;

constexpr int kPieces = 50;

std::string piece(int i) {
  return "data: " + std::to_string(i) + "\n\n";
}

std::string whole_stream() {
  std::string stream;
  for (int i = 0; i < kPieces; ++i) stream += piece(i);
  return stream;
}

// Threads that stream to each exchange that they are given, or leave it in the middle.
class Writers {
 public:
  explicit Writers(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
  }
  ~Writers() {
    for (std::size_t i = 0; i < threads_.size(); ++i) give(nullptr);
    for (auto& thread : threads_) thread.join();
  }
  void give(ExchangePtr exchange) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(exchange));
    arrived_.notify_one();
  }
  int64_t left() const { return left_; }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [&] { return !waiting_.empty(); });
      const ExchangePtr exchange = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      if (!exchange) return;
      stream_to(*exchange);
    }
  }
  void stream_to(Exchange& exchange) {
    exchange.on_closed([this] { ++left_; });
    exchange.on_drain([] {});
    exchange.begin_stream({});
    const bool abandons = exchange.request().query == "abandon";
    for (int i = 0; i < kPieces; ++i) {
      if (exchange.closed() || (abandons && i == kPieces / 2)) return;
      exchange.write(piece(i));
    }
    exchange.finish();
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<ExchangePtr> waiting_;
  std::atomic<int64_t> left_{0};
  std::vector<std::thread> threads_;
};

void misbehave(uint16_t port, int kind) {
  TestClient client(port);
  switch (kind % 8) {
    case 0:
      client.get("/stream");
      client.reset();
      break;
    case 1:
      client.get("/stream");
      client.read_past("data: 3");
      client.reset();
      break;
    case 2:
      client.get("/stream");
      client.end_output();
      break;
    case 3:
      client.send("nonsense\r\n\r\n");
      client.read_to_end();
      break;
    case 4:
      client.send("POST /stream HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\nhalf");
      break;
    case 5:
      client.get("/stream?abandon");
      EXPECT_FALSE(client.response().whole);
      break;
    case 6:
      client.get("/stream");
      client.send(std::string(2000, 'x') + "\r\n\r\n");  // too much while it waits, nonsense after
      client.read_to_end();
      break;
    default:
      client.send("GET /stream HTTP/1.1\r\nHo");
      client.reset();
  }
}

TEST(HttpStress, HealthyStreamsNoticeNothing) {
  constexpr int kRounds = 60;
  Writers writers(2);
  Config config;
  config.threads = 2;
  config.limits.max_pipelined_bytes = 1000;
  TestServer server({{"/stream", [&](ExchangePtr exchange) { writers.give(std::move(exchange)); }}},
                    config);
  std::vector<std::thread> clients;
  for (int thread = 0; thread < 2; ++thread) {
    clients.emplace_back([&] {
      TestClient client(server.port());
      for (int i = 0; i < kRounds; ++i) {
        const TestResponse response = client.fetch("/stream");
        EXPECT_TRUE(response.whole);
        EXPECT_EQ(response.body, whole_stream());
      }
    });
    clients.emplace_back([&, thread] {
      for (int i = 0; i < kRounds; ++i) misbehave(server.port(), i + thread);
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_TRUE(eventually(
      [&] { return server.server().num_active() == 0 && server.stats().open_connections == 0; }));
}

TEST(HttpStress, ClosesUnderLoad) {
  for (int round = 0; round < 5; ++round) {
    Writers writers(2);
    Config config;
    config.threads = 2;
    TestServer server(
        {{"/stream", [&](ExchangePtr exchange) { writers.give(std::move(exchange)); }}}, config);
    std::atomic<int> fetched{0};
    const uint16_t port = server.port();
    std::vector<std::thread> clients;
    for (int i = 0; i < 3; ++i) {
      clients.emplace_back([&, port] {
        TestClient client(port);
        while (client.fetch("/stream").whole) ++fetched;
      });
    }
    EXPECT_TRUE(eventually([&] { return fetched > 20; }));
    server.destroy();
    for (auto& client : clients) client.join();
  }
}

}  // namespace
}  // namespace quire::http
