#include "runner/thread_executor.h"

#include <fmt/format.h>

#include <exception>
#include <latch>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/blocking_queue.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "dist/communicator.h"
#include "quire/error.h"
#include "runner/gpu_runner.h"
#include "runner/model_runner.h"

namespace quire {
namespace {

class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(const ThreadExecutorOptions& options);
  ~ThreadExecutor() override;

  // Starts the ranks' threads and waits until they have loaded. Called once, before all else;
  // throws the first error of any rank.
  void start(const Checkpoint* checkpoint);
  void submit(std::shared_ptr<const ScheduledBatch> batch) override;
  StepOutput wait() override;

 private:
  using Batch = std::shared_ptr<const ScheduledBatch>;
  using Steps = BlockingQueue<std::unique_ptr<PendingStep>>;

  struct Rank {
    std::unique_ptr<Communicator> comm;
    BlockingQueue<Batch> batches;
    std::thread thread;
    // Only of GPUs' ranks other than 0, whose results nobody asks for: their steps, and the thread
    // that sees how these end. When a GPU fails, the others wait for it until the group is aborted.
    Steps steps;
    std::thread watcher;
  };

  static std::vector<std::unique_ptr<Communicator>> make_communicators(
      const ThreadExecutorOptions& options);
  void start_threads(Rank& rank, const Checkpoint* checkpoint);
  // The body of a rank's thread.
  void run_rank(Rank& rank, const Checkpoint* checkpoint);
  std::unique_ptr<RankRunner> make_runner(Rank& rank, ThreadPool& pool,
                                          std::optional<Stream>& stream);
  void serve(Rank& rank, RankRunner& runner);
  // Waits for the steps of a rank until their queue is closed; fails the rank when one failed. The
  // body of a watcher.
  void watch(Rank& rank, Steps& steps);
  // Keeps the first error and wakes everybody who waits for this rank. Within a catch block.
  void fail(Rank& rank);
  void rethrow_error();

  const ThreadExecutorOptions options_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::latch loaded_;  // every rank has loaded its weights, or failed
  Steps results_;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

// The CPUs of one rank: its share of the machine's, physical cores first. Empty (no pinning) where
// the ranks ask for more threads than there are CPUs.
std::vector<int> cpus_of_rank(int rank, int threads_per_rank, int num_ranks) {
  const std::vector<int> cpus = cpu_topology().cpus;
  if (static_cast<size_t>(threads_per_rank) * static_cast<size_t>(num_ranks) > cpus.size())
    return {};
  const auto begin = cpus.begin() + static_cast<std::ptrdiff_t>(rank) * threads_per_rank;
  return {begin, begin + threads_per_rank};
}

ThreadExecutor::ThreadExecutor(const ThreadExecutorOptions& options)
    : options_(options), loaded_(options.tensor_parallel_size) {
  for (auto& comm : make_communicators(options)) {
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->comm = std::move(comm);
  }
}

ThreadExecutor::~ThreadExecutor() {
  for (auto& rank : ranks_) rank->batches.close();
  // Nobody asks for the last steps any more, but a GPU that fails in one leaves the others waiting.
  watch(*ranks_.front(), results_);
  for (auto& rank : ranks_) {
    if (rank->thread.joinable()) rank->thread.join();
    rank->steps.close();
    if (rank->watcher.joinable()) rank->watcher.join();
  }
}

std::vector<std::unique_ptr<Communicator>> ThreadExecutor::make_communicators(
    const ThreadExecutorOptions& options) {
  const int size = options.tensor_parallel_size;
  if (size > 1 && options.gpu_library != nullptr) {
    std::vector<int> gpus(static_cast<size_t>(size));
    std::iota(gpus.begin(), gpus.end(), 0);
    return options.gpu_library->make_communicators(gpus);
  }
  if (size > 1) return make_local_communicators(size);
  std::vector<std::unique_ptr<Communicator>> single;
  single.push_back(make_single_communicator());
  return single;
}

void ThreadExecutor::fail(Rank& rank) {
  {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
  rank.comm->abort();
  results_.close();
}

void ThreadExecutor::start(const Checkpoint* checkpoint) {
  for (auto& rank : ranks_) {
    try {
      start_threads(*rank, checkpoint);
    } catch (const std::system_error& error) {
      // Those that run must not wait for this one.
      for (auto& other : ranks_) other->comm->abort();
      results_.close();
      throw Error(fmt::format(
          "The thread of rank {} cannot be started: {}{}.", rank->comm->rank(), error.what(),
          ranks_.size() > 1 ? "; choose a smaller --tensor-parallel-size" : ""));
    }
  }
  loaded_.wait();
  rethrow_error();
}

void ThreadExecutor::start_threads(Rank& rank, const Checkpoint* checkpoint) {
  rank.thread = std::thread([this, &rank, checkpoint] { run_rank(rank, checkpoint); });
  if (rank.comm->rank() == 0 || options_.gpu_library == nullptr) return;
  rank.watcher = std::thread([this, &rank] { watch(rank, rank.steps); });
}

std::unique_ptr<RankRunner> ThreadExecutor::make_runner(Rank& rank, ThreadPool& pool,
                                                        std::optional<Stream>& stream) {
  if (options_.gpu_library != nullptr) {
    const GpuRank gpu{options_.gpu_library.get(), rank.comm->rank(), options_.gpu_rank_bytes};
    return std::make_unique<GpuRunner>(options_.runner, gpu, *rank.comm, pool);
  }
  stream.emplace(pool, options_.isa);
  return std::make_unique<ModelRunner>(options_.runner, *rank.comm, *stream);
}

void ThreadExecutor::run_rank(Rank& rank, const Checkpoint* checkpoint) {
  std::optional<ThreadPool> pool;
  std::optional<Stream> stream;
  std::unique_ptr<RankRunner> runner;
  try {
    const int index = rank.comm->rank();
    pool.emplace(options_.threads_per_rank,
                 cpus_of_rank(index, options_.threads_per_rank, options_.tensor_parallel_size));
    runner = make_runner(rank, *pool, stream);
    runner->load(checkpoint, index == 0 ? options_.on_progress : ProgressCallback());
    // What went wrong at the start of a group comes out here, and not with the first request.
    rank.comm->barrier();
  } catch (...) {
    fail(rank);
    runner.reset();
  }
  loaded_.count_down();
  if (!runner) return;
  try {
    serve(rank, *runner);
  } catch (...) {
    fail(rank);
  }
}

void ThreadExecutor::serve(Rank& rank, RankRunner& runner) {
  while (std::optional<Batch> batch = rank.batches.pop()) {
    std::unique_ptr<PendingStep> step = runner.launch(**batch);
    if (rank.comm->rank() == 0) {
      results_.push(std::move(step));
    } else if (options_.gpu_library != nullptr) {
      rank.steps.push(std::move(step));
    }
  }
  if (rank.comm->rank() == 0) results_.close();
}

void ThreadExecutor::watch(Rank& rank, Steps& steps) {
  while (std::optional<std::unique_ptr<PendingStep>> step = steps.pop()) {
    try {
      (*step)->finish();
    } catch (...) {
      // While the step is there: what frees its memory may wait for the GPUs of all ranks.
      fail(rank);
      return;
    }
  }
}

void ThreadExecutor::submit(std::shared_ptr<const ScheduledBatch> batch) {
  for (auto& rank : ranks_) rank->batches.push(batch);
}

StepOutput ThreadExecutor::wait() {
  std::optional<std::unique_ptr<PendingStep>> step = results_.pop();
  if (!step) {
    rethrow_error();
    check(false, "the executor was waited for after it was closed");
  }
  try {
    return (*step)->wait();
  } catch (...) {
    fail(*ranks_.front());
    // The first error: a rank that fails takes the others with it.
    rethrow_error();
    throw;
  }
}

void ThreadExecutor::rethrow_error() {
  const std::lock_guard lock(error_mutex_);
  if (error_) std::rethrow_exception(error_);
}

}  // namespace

std::unique_ptr<Executor> make_thread_executor(const ThreadExecutorOptions& options,
                                               const Checkpoint* checkpoint) {
  auto executor = std::make_unique<ThreadExecutor>(options);
  executor->start(checkpoint);
  return executor;
}

}  // namespace quire
