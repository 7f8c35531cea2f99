#pragma once
// Moves slow work off the I/O thread and returns its result there.
//
// Thread safety: free functions.
#include <exception>
#include <functional>
#include <string>

#include "server/service_context.h"

namespace quire::server {

// Runs `work` on a thread of `workers`, as a task of `client`, then `done` on the I/O thread with
// the exception of `work` (null: none), and destroys both there. If this throws, neither is run.
// Otherwise `done` is called even if no memory is left, unless the server ends before.
void run_on_worker(const ServiceContext& context, WorkerPool& workers, std::function<void()> work,
                   std::function<void(const std::exception_ptr& failure)> done,
                   const std::string& client = {});

}  // namespace quire::server
