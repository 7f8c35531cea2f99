#pragma once
// Where an op runs: the first argument of every op.
//
// On the CPU a stream is a thread pool, and an op has finished when it returns. On a GPU an op is
// queued, and later ops on the same stream see its results.
// Thread safety: one thread at a time, the rank's worker.
#include "base/thread_pool.h"
#include "core/device.h"

namespace quire {

class Stream {
 public:
  // Work runs on `pool`, which outlives the stream.
  explicit Stream(ThreadPool& pool) : pool_(&pool) {}

  const Device& device() const { return device_; }
  ThreadPool& pool() const { return *pool_; }

 private:
  Device device_;
  ThreadPool* pool_;
};

}  // namespace quire
