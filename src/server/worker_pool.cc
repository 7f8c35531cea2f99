#include "server/worker_pool.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

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
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    stop();
    throw Error(std::string("The server's worker threads cannot be started: ") + error.what() +
                ".");
  }
}

WorkerPool::~WorkerPool() {
  stop();
}

void WorkerPool::run(std::function<void()> task, const std::string& client) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    const auto known = std::ranges::find(clients_, client, &Client::name);
    if (known != clients_.end()) {
      known->tasks.push_back(std::move(task));
    } else {
      std::list<Client> added(1);
      added.front().name = client;
      added.front().tasks.push_back(std::move(task));
      clients_.splice(clients_.end(), added);
    }
  }
  ready_.notify_one();
}

std::function<void()> WorkerPool::next_task() {
  Client& client = clients_.front();
  std::function<void()> task = std::move(client.tasks.front());
  client.tasks.pop_front();
  if (client.tasks.empty()) {
    clients_.pop_front();
  } else {
    clients_.splice(clients_.end(), clients_, clients_.begin());
  }
  return task;
}

void WorkerPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ready_.wait(lock, [this] { return stopping_ || !clients_.empty(); });
    if (stopping_) return;
    {
      const std::function<void()> task = next_task();
      lock.unlock();
      run_alone(task);
    }  // what it holds goes without the lock
    lock.lock();
  }
}

void WorkerPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  // What they hold may call run() as it goes.
  std::list<Client> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(clients_);
  }
}

}  // namespace quire::server
