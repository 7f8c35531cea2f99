#pragma once
// Parallel loops that can be ended half-way, for work whose single steps take minutes.
//
// Thread safety: one thread at a time, which owns the pool and on which `goes_on` is called.
#include <cstdint>
#include <exception>
#include <functional>
#include <utility>

#include "base/thread_pool.h"

namespace quire {

// Thrown where `goes_on` ends the work.
class WorkEnded : public std::exception {
 public:
  const char* what() const noexcept override { return "the work was ended"; }
};

class EndableLoops {
 public:
  using GoesOn = std::function<bool()>;

  // `goes_on` is called often, so it must be fast; without it the loops never end early. The pool
  // must outlive the object.
  explicit EndableLoops(ThreadPool& pool, GoesOn goes_on = nullptr)
      : pool_(pool), goes_on_(std::move(goes_on)) {}

  ThreadPool& pool() const { return pool_; }
  // Throws WorkEnded where the work ends.
  void check_point() const {
    if (goes_on_ && !goes_on_()) throw WorkEnded();
  }
  // ThreadPool::parallel_for with a check_point() before each task of the calling thread.
  void parallel_for(int64_t num_tasks, const std::function<void(int64_t task)>& body) const {
    pool_.parallel_for(num_tasks, [&](int64_t task, int thread) {
      if (thread == 0) check_point();
      body(task);
    });
  }

 private:
  ThreadPool& pool_;
  GoesOn goes_on_;
};

}  // namespace quire
