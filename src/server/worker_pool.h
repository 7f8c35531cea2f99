#pragma once
// Threads for work that takes too long on the I/O thread: parsing large bodies, rendering
// templates, tokenising.
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
  // Waits for running tasks, and drops the others.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Queues a task. Threads that become free take the clients with tasks in turn, and a client's
  // tasks in their order: so however many tasks one client has queued, another's next task waits
  // for at most one of them on each thread. A task that throws is dropped with what it holds. If
  // this throws, or the pool ends first, the task is not run.
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
