#include "server/worker_pool.h"

#include <string>
#include <system_error>

#include "quire/error.h"

namespace quire::server {

WorkerPool::WorkerPool(int num_threads) {
  try {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] {
        while (auto task = tasks_.pop()) {
          if (!stopping_) (*task)();
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
