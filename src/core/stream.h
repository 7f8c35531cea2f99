#pragma once
// Where an op runs: the first argument of every op.
//
// On the CPU a stream is a thread pool and an instruction set, and an op has finished when it
// returns. On a GPU an op is queued, and later ops on the same stream see its results. Thread
// safety: one thread at a time, the rank's worker.
#include <cstddef>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "core/buffer.h"
#include "core/device.h"

namespace quire {

class Stream {
 public:
  // Work runs on `pool`, which outlives the stream, with kernels for `isa`, which the CPU supports.
  explicit Stream(ThreadPool& pool, Isa isa = best_isa()) : pool_(&pool), isa_(isa) {}

  const Device& device() const { return device_; }
  ThreadPool& pool() const { return *pool_; }
  Isa isa() const { return isa_; }

  // At least `bytes` of memory for one op's own use: the next op overwrites it. It grows to the
  // most that was asked for (ops/scratch.h bounds it) and throws Error when the machine has not
  // that much.
  std::byte* scratch(size_t bytes) {
    if (bytes > scratch_.size()) {
      scratch_ = Buffer();
      scratch_ = Buffer(bytes);
    }
    return scratch_.data();
  }

 private:
  Device device_;
  ThreadPool* pool_;
  Isa isa_;
  Buffer scratch_;
};

}  // namespace quire
