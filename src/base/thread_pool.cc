#include "base/thread_pool.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/cpu_placement.h"
#include "base/memory_reserve.h"
#include "quire/error.h"

namespace quire {
namespace {

// Longer than the gap between two loops of a forward pass, shorter than anybody notices.
constexpr auto kSpinTime = std::chrono::microseconds(50);

int allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

void pin(std::thread& thread, int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) {
    throw Error(fmt::format("A thread cannot be pinned to CPU {}: CPUs are numbered 0 to {}.", cpu,
                            CPU_SETSIZE - 1));
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  const int error = pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
  if (error != 0) {
    throw Error(
        fmt::format("A thread cannot be pinned to CPU {}: {}; choose CPUs that this process "
                    "may run on.",
                    cpu, std::strerror(error)));
  }
}

}  // namespace

// A loop is published through `ticket`: its upper half numbers the loop, its lower half is the next
// task to take, or kClosed while no loop may be joined. Threads take tasks by compare-and-swap on
// the whole, so a worker that wakes late can never take a task of a loop it did not look at. No
// thread waits for workers that had nothing to do.
struct ThreadPool::State {
  using Body = std::function<void(int64_t, int)>;
  static constexpr uint64_t kLoop = uint64_t{1} << 32;
  static constexpr uint64_t kTaskMask = kLoop - 1;
  static constexpr uint64_t kClosed = kTaskMask;

  alignas(64) std::atomic<uint64_t> ticket{kClosed};
  std::atomic<const Body*> body{nullptr};
  std::atomic<uint64_t> num_tasks{0};
  alignas(64) std::atomic<uint64_t> num_done{0};
  std::atomic<uint64_t> num_alone{0};  // tasks of loops that the caller runs without workers
  alignas(64) std::atomic<int> num_sleeping{0};
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  bool spin = true;
  std::mutex mutex;
  std::condition_variable wake;
  std::exception_ptr error;  // of the task that set `failed`
  std::vector<std::thread> workers;

  // Takes tasks until none is left; returns the last ticket seen.
  uint64_t run_tasks(int thread) {
    uint64_t done = 0;
    uint64_t seen = ticket.load(std::memory_order_acquire);
    while ((seen & kTaskMask) != kClosed) {
      // Acquired, so that if these belong to a later loop, the exchange below sees its ticket and
      // fails.
      const uint64_t limit = num_tasks.load(std::memory_order_acquire);
      const Body* current = body.load(std::memory_order_acquire);
      if ((seen & kTaskMask) >= limit) break;
      if (!ticket.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        continue;
      }
      call(*current, static_cast<int64_t>(seen & kTaskMask), thread);
      ++done;
      if ((seen & kTaskMask) + 1 == limit) break;
      seen = ticket.load(std::memory_order_acquire);
    }
    if (done > 0) num_done.fetch_add(done, std::memory_order_acq_rel);
    return seen;
  }

  void call(const Body& task_body, int64_t task, int thread) {
    try {
      task_body(task, thread);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }

  void work(int thread) {
    uint64_t seen_loop = 0;
    while (wait_for_loop(seen_loop)) seen_loop = run_tasks(thread) / kLoop;
  }

  // Waits until the ticket belongs to another loop than `seen_loop`; false: the pool ends.
  bool wait_for_loop(uint64_t seen_loop) {
    const auto changed = [&] {
      const uint64_t now = ticket.load(std::memory_order_seq_cst);
      return (now / kLoop != seen_loop && (now & kTaskMask) != kClosed) ||
             stop.load(std::memory_order_seq_cst);
    };
    const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
    while (spin && std::chrono::steady_clock::now() < deadline) {
      for (int i = 0; i < 32; ++i) {
        if (changed()) return !stop.load();
        _mm_pause();
      }
    }
    std::unique_lock lock(mutex);
    num_sleeping.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, changed);
    num_sleeping.fetch_sub(1, std::memory_order_seq_cst);
    return !stop.load();
  }

  void wake_sleepers() {
    if (num_sleeping.load(std::memory_order_seq_cst) == 0) return;
    // Empty, but a worker between its last look at the ticket and its sleep holds the mutex.
    { std::lock_guard lock(mutex); }
    wake.notify_all();
  }

  // Once all tasks are done.
  void rethrow_error() {
    if (!failed.load(std::memory_order_relaxed)) return;
    failed = false;
    std::rethrow_exception(std::exchange(error, nullptr));
  }

  void publish(uint64_t tasks, const Body& new_body) {
    const uint64_t last_loop = ticket.load(std::memory_order_relaxed) / kLoop;
    ticket.store(last_loop * kLoop | kClosed, std::memory_order_release);
    num_done.store(0, std::memory_order_relaxed);
    num_tasks.store(tasks, std::memory_order_release);
    body.store(&new_body, std::memory_order_release);
    ticket.store((last_loop + 1) * kLoop, std::memory_order_seq_cst);
    wake_sleepers();
  }

  void wait_until_done(uint64_t tasks) {
    for (int i = 0; num_done.load(std::memory_order_acquire) != tasks; ++i) {
      if (spin && i < 4096) {
        _mm_pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

  void end() {
    stop.store(true, std::memory_order_seq_cst);
    wake_sleepers();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int num_threads, std::vector<int> cpus, MemoryReserve* memory_reserve)
    : state_(std::make_unique<State>()) {
  check(num_threads >= 1, "a thread pool has at least one thread");
  check(cpus.empty() || static_cast<int>(cpus.size()) >= num_threads, "a CPU for each thread");
  // Spinning threads that share a CPU only keep each other from working.
  state_->spin = num_threads <= allowed_cpus();
  try {
    for (int i = 1; i < num_threads; ++i) {
      state_->workers.emplace_back([state = state_.get(), i, memory_reserve] {
        const MemoryReserve::User user(memory_reserve);
        state->work(i);
      });
      if (!cpus.empty()) pin(state_->workers.back(), cpus[static_cast<size_t>(i)]);
    }
  } catch (const std::system_error& error) {
    state_->end();
    throw Error(fmt::format("A pool of {} threads cannot be started: {}; choose fewer (--threads).",
                            num_threads, error.what()));
  } catch (...) {
    state_->end();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  state_->end();
}

int ThreadPool::size() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

uint64_t ThreadPool::progress() const {
  return state_->ticket.load(std::memory_order_relaxed) +
         state_->num_alone.load(std::memory_order_relaxed);
}

void ThreadPool::parallel_for(int64_t num_tasks,
                              const std::function<void(int64_t task, int thread)>& body) {
  check(num_tasks >= 0 && static_cast<uint64_t>(num_tasks) < State::kClosed,
        "a parallel loop has fewer than 2^32 - 1 tasks");
  if (num_tasks <= 1 || state_->workers.empty()) {
    for (int64_t task = 0; task < num_tasks; ++task) {
      // Only this thread writes it.
      state_->num_alone.store(state_->num_alone.load(std::memory_order_relaxed) + 1,
                              std::memory_order_relaxed);
      body(task, 0);
    }
    return;
  }
  state_->publish(static_cast<uint64_t>(num_tasks), body);
  state_->run_tasks(0);
  state_->wait_until_done(static_cast<uint64_t>(num_tasks));
  state_->rethrow_error();
}

CpuTopology cpu_topology() {
  return numa_topology().cpus;
}

}  // namespace quire
