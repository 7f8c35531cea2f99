#pragma once
// A stream of a simulated GPU: a thread that does what is queued, in order, while the host goes on.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/device_library.h"
#include "ops/cuda/linear/algorithms.h"
#include "simulated_gpu/gpu.h"

namespace quire {
namespace simulated {

struct Task {
  std::string_view name;  // of the kernel: a literal
  std::function<void()> run;
};

// Thread safety: all functions from any thread.
class StreamQueue {
 public:
  explicit StreamQueue(Gpu& gpu);
  // Does what is queued first.
  ~StreamQueue();
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  void push(Task task);
  // Tasks so far.
  uint64_t size();
  // Returns when the first `position` tasks are done. Throws Error when one of them failed: `what`
  // is what the host was doing.
  void wait(uint64_t position, std::string_view what);
  // Returns when the first `position` tasks are done, failed or not: another stream that waits for
  // them goes on.
  void pass(uint64_t position);
  // Returns when everything queued is done, failed or not.
  void finish();
  // A lazy stream, too, does what is queued so far.
  void begin();

 private:
  // The thread's body.
  void work();
  bool has_work() const;
  // What is wrong with the task, in CUDA's words; empty where nothing is.
  std::string run(const Task& task);
  void wait_until_done(std::unique_lock<std::mutex>& lock, uint64_t position);
  // Under the lock: a lazy stream, too, may work up to `position`.
  void want(uint64_t position);

  Gpu& gpu_;
  std::mutex mutex_;
  // Two conditions, so that a change wakes only threads that have something to do: those of several
  // GPUs share few CPUs.
  std::condition_variable has_work_;
  std::condition_variable is_done_;
  std::deque<Task> tasks_;
  uint64_t num_queued_ = 0;
  uint64_t num_done_ = 0;
  uint64_t num_wanted_ = 0;          // what a lazy stream may do
  std::multiset<uint64_t> awaited_;  // positions that somebody waits for
  uint64_t failed_ = 0;  // the number of the task that failed, from 1; those after it do nothing
  std::string error_;
  bool is_closed_ = false;
  std::thread thread_;
};

}  // namespace simulated

// What kernels are queued on. Thread safety: one thread at a time.
class CudaStream {
 public:
  // Null: the table of the source.
  explicit CudaStream(simulated::Gpu& gpu,
                      std::shared_ptr<const ops::LinearAlgorithms> algorithms = nullptr);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  // Between begin_capture() and end_capture() tasks are kept instead.
  void queue(std::string_view name, std::function<void()> run);
  void begin_capture();
  std::vector<simulated::Task> end_capture();
  // Queues what was captured.
  void replay(const std::vector<simulated::Task>& tasks);
  // Throws OutOfDeviceMemory where the fault says that `what` finds no memory.
  void take_memory_for(std::string_view what) const;
  // Throws Error during a capture, in which nothing can be waited for.
  void check_not_capturing(std::string_view what) const;
  const simulated::Gpu& gpu() const { return gpu_; }
  const ops::LinearAlgorithms& linear_algorithms() const { return *linear_algorithms_; }
  std::shared_ptr<simulated::StreamQueue> work() const { return work_; }

 private:
  simulated::Gpu& gpu_;
  std::shared_ptr<const ops::LinearAlgorithms> linear_algorithms_;
  std::shared_ptr<simulated::StreamQueue> work_;
  bool is_capturing_ = false;
  std::vector<simulated::Task> captured_;
};

namespace simulated {

std::unique_ptr<DeviceStream> make_stream(Gpu& gpu,
                                          std::shared_ptr<const ops::LinearAlgorithms> algorithms);

}  // namespace simulated
}  // namespace quire
