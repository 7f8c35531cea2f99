#pragma once
// Threads for what takes too long for the I/O thread: parsing large bodies, rendering templates,
// tokenising.
//
// Thread safety: run() from any thread.
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/blocking_queue.h"

namespace quire::server {

class WorkerPool {
 public:
  // Throws Error if a thread cannot be started.
  explicit WorkerPool(int num_threads);
  // Waits for the tasks that have begun, and drops the others.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // In the order given, as threads become free. A task that throws is dropped with
  // what it holds.
  void run(std::function<void()> task) { tasks_.push(std::move(task)); }

 private:
  void stop();

  std::atomic<bool> stopping_ = false;
  BlockingQueue<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
};

}  // namespace quire::server
