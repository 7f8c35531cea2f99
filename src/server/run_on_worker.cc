#include "server/run_on_worker.h"

#include <memory>
#include <utility>

namespace quire::server {

void run_on_worker(const ServiceContext& context, WorkerPool& workers, std::function<void()> work,
                   std::function<void(const std::exception_ptr& failure)> done,
                   const std::string& client) {
  struct Task {
    std::function<void()> work;
    std::function<void(const std::exception_ptr&)> done;
    std::exception_ptr failure;
  };
  const auto task =
      std::make_shared<Task>(Task{std::move(work), std::move(done), std::exception_ptr()});
  // Made now: the work may use up the memory.
  std::function<void()> finish = [task] {
    const Task own = std::move(*task);
    own.done(own.failure);
  };
  std::function<void()> run = [task, &context, finish = std::move(finish)] {
    try {
      task->work();
    } catch (...) {
      task->failure = std::current_exception();
    }
    context.post(finish);
  };
  workers.run(std::move(run), client);
}

}  // namespace quire::server
