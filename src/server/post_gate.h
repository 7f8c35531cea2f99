#pragma once
// The way to the I/O thread, while there is one: timers and workers of the service outlive the
// server that it belongs to.
//
// Thread safety: from any thread.
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "http/server.h"

namespace quire::server {

class PostGate {
 public:
  // Tasks that were posted before run now.
  void open(http::Server* server) {
    const std::lock_guard lock(mutex_);
    server_ = server;
    for (auto& task : std::exchange(early_, {})) server_->post(std::move(task));
  }
  // From here on tasks are dropped.
  void close() {
    const std::lock_guard lock(mutex_);
    server_ = nullptr;
    closed_ = true;
  }
  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (server_ != nullptr) {
      server_->post(std::move(task));
    } else if (!closed_) {
      early_.push_back(std::move(task));
    }
  }

 private:
  std::mutex mutex_;
  http::Server* server_ = nullptr;
  bool closed_ = false;
  std::vector<std::function<void()>> early_;
};

}  // namespace quire::server
