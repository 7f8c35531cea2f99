#pragma once
// A fixed set of threads that run one parallel loop at a time, for the CPU ops.
//
// The calling thread takes part as thread 0, so a pool of size 1 starts no thread. Workers are
// pinned to the CPUs given; between loops they spin for a short while and then sleep, so that the
// loops of one forward pass follow each other without system calls and an idle engine uses no CPU.
// Results must never depend on size(): a task writes its own part of the output, and its arithmetic
// does not depend on how tasks are grouped.
// Thread safety: one thread at a time may call parallel_for.
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace quire {

class MemoryReserve;

class ThreadPool {
 public:
  // `num_threads` >= 1, the caller included. `cpus`: the CPU to pin each thread to (thread 0, the
  // caller, is never pinned); empty: no pinning. `memory_reserve`: for the threads that the pool
  // starts; must outlive it, and may be null.
  explicit ThreadPool(int num_threads, std::vector<int> cpus = {},
                      MemoryReserve* memory_reserve = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  // Grows with each task that begins. From any thread.
  uint64_t progress() const;

  // Calls body(task, thread) once for each task in [0, num_tasks), thread in [0, size()), and
  // returns when all are done. Tasks are handed out in order as threads become free. If a task
  // throws, parallel_for throws the first such exception, and later tasks may not be called.
  void parallel_for(int64_t num_tasks, const std::function<void(int64_t task, int thread)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The CPUs this process may run on, one for each physical core first, then their siblings. The
// number of physical cores is the default number of threads.
struct CpuTopology {
  std::vector<int> cpus;
  int num_physical_cores = 1;
};
CpuTopology cpu_topology();

}  // namespace quire
