#pragma once
// For tests of the service: a service on an engine that computes nothing. The test's thread is the
// I/O thread, and clients are plain objects.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "http/exchange.h"
#include "server/mock_engine.h"
#include "server/service.h"

namespace quire::server {

// Fields of a request that runs until something else ends it.
inline constexpr const char* kEndless = R"(, "max_tokens": 990, "stream": true)";

// Stands for the I/O thread: runs posted tasks until a condition holds.
class IoLoop {
 public:
  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    added_.notify_one();
  }
  // False if the condition does not hold for very long.
  template <typename Condition>
  bool run_until(Condition holds) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        if (!added_.wait_until(lock, give_up, [this] { return !tasks_.empty(); })) return false;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::function<void()>> tasks_;
};

class FakeExchange : public http::Exchange {
 public:
  explicit FakeExchange(http::Request request) : request_(std::move(request)) {}

  const http::Request& request() const override { return request_; }
  std::string take_body() override { return std::move(request_.body); }
  std::unique_ptr<MemoryCharge> take_charge() override { return std::move(charge); }
  void respond(http::Response given) override {
    EXPECT_FALSE(response) << "answered twice";
    response = std::move(given);
    complete = true;
    tell_end();
  }
  void begin_stream(http::Response head) override {
    EXPECT_FALSE(response) << "answered twice";
    response = std::move(head);
  }
  void write(std::string piece) override {
    EXPECT_FALSE(complete) << "written after the end";
    if (std::exchange(next_write_fails, false)) throw std::bad_alloc();
    if (gone) return;
    written += piece;
    if (piece.size() <= kStreamHighWater || !is_read || !drained) return;
    const auto callback = drained;  // which may be replaced while it runs
    callback();
  }
  void finish() override {
    complete = true;
    tell_end();
  }
  size_t buffered() const override { return buffered_bytes; }
  void on_drain(std::function<void()> callback) override { drained = std::move(callback); }
  void on_closed(std::function<void()> callback) override { closed_callback = std::move(callback); }
  bool closed() const override { return gone; }
  void on_end(std::function<void(bool delivered)> callback) override {
    end_callback = std::move(callback);
    tell_end();
  }

  void disconnect() {
    gone = true;
    if (!complete && closed_callback) std::exchange(closed_callback, {})();
    tell_end();
  }

  std::unique_ptr<MemoryCharge> charge;
  std::optional<http::Response> response;
  std::string written;
  std::atomic<bool> complete = false;  // set on a worker for an answer in pieces
  std::atomic<bool> gone = false;      // workers look, too
  size_t buffered_bytes = 0;
  bool next_write_fails = false;
  std::function<void()> drained;
  bool is_read = true;  // the client takes what is sent
  std::function<void()> closed_callback;
  std::function<void(bool delivered)> end_callback;

 private:
  void tell_end() {
    if (end_callback && (gone || (complete && is_read))) std::exchange(end_callback, {})(!gone);
  }

  http::Request request_;
};

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    config_.admission = {.max_num_queued_requests = 2, .max_num_seqs = 2};
    config_.metrics.max_model_len = 1000;
    config_.num_workers = 1;
    model_.id = "mock";
    model_.max_model_len = 1000;
    model_.vocab_size = 100;
  }
  void TearDown() override {
    if (!service_) return;
    engine_.hold(false);
    engine_.hold_compiling(false);
    engine_.hold_adapters(false);
    service_->cut_short();
    EXPECT_TRUE(loop_.run_until([this] { return service_->num_generations() == 0; }));
  }

  Service& service() {
    if (!service_) {
      service_ = std::make_unique<Service>(
          config_, model_,
          ServiceEnvironment{
              .engine = engine_,
              .log = log_,
              .post = [this](std::function<void()> task) { loop_.post(std::move(task)); },
              .http_stats = [] { return http::Stats{}; },
              .engine_failed = [this](const std::string& message) { engine_error_ = message; }});
    }
    return *service_;
  }
  std::shared_ptr<FakeExchange> call(const std::string& method, const std::string& path,
                                     const std::string& body = "", http::Headers headers = {}) {
    http::Request request;
    request.method = method;
    request.path = path;
    request.body = body;
    request.headers = std::move(headers);
    request.remote = "127.0.0.1";
    auto exchange = std::make_shared<FakeExchange>(std::move(request));
    service().handle(exchange);
    return exchange;
  }
  std::shared_ptr<FakeExchange> complete(const std::string& fields) {
    return call("POST", "/v1/completions", R"({"prompt": [1, 2, 3])" + fields + "}");
  }
  void finish(const FakeExchange& exchange) {
    ASSERT_TRUE(loop_.run_until([&] { return exchange.complete.load(); }));
  }
  nlohmann::json body_of(const FakeExchange& exchange) {
    return nlohmann::json::parse(exchange.response->body);
  }
  // The number of tokens generated so far, by the mock engine's count.
  int64_t engine_tokens() { return engine_.stats().generation_tokens; }
  void wait_until_engine_idle() {
    ASSERT_TRUE(loop_.run_until([this] {
      if (engine_.stats().num_running == 0) return true;
      loop_.post([] {});
      std::this_thread::yield();
      return false;
    }));
  }

  IoLoop loop_;
  MockEngine engine_{"x"};  // free
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> nowhere_{std::fopen("/dev/null", "w"),
                                                           std::fclose};
  AccessLog log_{{.fd = fileno(nowhere_.get())}};
  ServiceConfig config_;
  ModelInfo model_;
  std::unique_ptr<Service> service_;
  std::string engine_error_;
};

}  // namespace quire::server
