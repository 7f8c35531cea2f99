#include "server/worker_pool.h"

#include <exception>
#include <string>
#include <system_error>

#include "quire/error.h"

namespace quire::server {

namespace {

// What a task throws (no memory, say) ends nothing but the task. The exchange that it held is
// answered with a 500 as it goes.
void run_alone(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

WorkerPool::WorkerPool(int num_threads) {
  try {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] {
        while (auto task = tasks_.pop()) {
          if (!stopping_) run_alone(*task);
        }
      });
    }
  } catch (const std::system_error& error) {
    stop();
    throw Error(std::string("The server's worker threads cannot be started: ") + error.what() +
                ".");
  }
}

WorkerPool::~WorkerPool() {
  stop();
}

void WorkerPool::stop() {
  stopping_ = true;
  tasks_.close();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace quire::server
