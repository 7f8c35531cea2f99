#pragma once
// Threads for what takes too long for the I/O thread: parsing large bodies, rendering templates,
// tokenising.
//
// Thread safety: run() from any thread.
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace quire::server {

class WorkerPool {
 public:
  // Throws Error if a thread cannot be started.
  explicit WorkerPool(int num_threads);
  // Waits for the tasks that have begun, and drops the others.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // As threads become free: the clients that have tasks in turn, the tasks of a client in the order
  // given. So whatever one has queued, another waits for one of its tasks a thread, not for all. A
  // task that throws is dropped with what it holds. If this throws, or once the
  // pool goes, the task is not run.
  void run(std::function<void()> task, const std::string& client = {});

 private:
  struct Client {
    std::string name;
    std::deque<std::function<void()>> tasks;
  };

  void work();
  // With mutex_ held; requires that a task waits. Needs no memory.
  std::function<void()> next_task();
  void stop();

  std::mutex mutex_;
  std::condition_variable ready_;
  std::list<Client> clients_;  // those that have tasks, the next first
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire::server
