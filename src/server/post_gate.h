#pragma once
// The way to the I/O thread, while there is one: timers and workers of the service outlive the
// server that it belongs to.
//
// Thread safety: from any thread.
#include <functional>
#include <mutex>
#include <utility>

#include "http/server.h"

namespace quire::server {

class PostGate {
 public:
  void open(http::Server* server) {
    const std::lock_guard lock(mutex_);
    server_ = server;
  }
  // From here on tasks are dropped.
  void close() { open(nullptr); }
  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (server_ != nullptr) server_->post(std::move(task));
  }

 private:
  std::mutex mutex_;
  http::Server* server_ = nullptr;
};

}  // namespace quire::server
