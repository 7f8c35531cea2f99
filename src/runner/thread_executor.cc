#include "runner/executor.h"

#include <fmt/format.h>

#include <exception>
#include <latch>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/blocking_queue.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "dist/communicator.h"
#include "quire/error.h"
#include "runner/gpu_runner.h"
#include "runner/model_runner.h"

namespace quire {

struct Executor::Group {
  using Batch = std::shared_ptr<const ScheduledBatch>;
  using Steps = BlockingQueue<std::unique_ptr<PendingStep>>;

  struct Rank {
    std::unique_ptr<Communicator> comm;
    BlockingQueue<Batch> batches;
    std::thread thread;
    // Of GPUs' ranks other than 0, whose results nobody asks for: their steps, and who looks at how
    // these end. A GPU that fails leaves the others waiting for it until somebody says so.
    Steps steps;
    std::thread watcher;
  };

  explicit Group(const ExecutorOptions& options)
      : options(options), loaded(options.tensor_parallel_size) {}
  ~Group() {
    for (auto& rank : ranks) rank->batches.close();
    for (auto& rank : ranks) {
      if (rank->thread.joinable()) rank->thread.join();
      rank->steps.close();
      if (rank->watcher.joinable()) rank->watcher.join();
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Starts the ranks' threads.
  void start(const Checkpoint* checkpoint);
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

  ExecutorOptions options;
  std::latch loaded;  // every rank has loaded its weights, or failed
  std::vector<std::unique_ptr<Rank>> ranks;
  Steps results;
  std::mutex error_mutex;
  std::exception_ptr error;

  void rethrow_error() {
    const std::lock_guard lock(error_mutex);
    if (error) std::rethrow_exception(error);
  }
};

namespace {

// The CPUs of one rank: its share of the machine's, physical cores first. Empty (no pinning) where
// the ranks ask for more threads than there are CPUs.
std::vector<int> cpus_of_rank(int rank, int threads_per_rank, int num_ranks) {
  const std::vector<int> cpus = cpu_topology().cpus;
  if (static_cast<size_t>(threads_per_rank) * static_cast<size_t>(num_ranks) > cpus.size())
    return {};
  const auto begin = cpus.begin() + static_cast<std::ptrdiff_t>(rank) * threads_per_rank;
  return {begin, begin + threads_per_rank};
}

}  // namespace

void Executor::Group::fail(Rank& rank) {
  {
    const std::lock_guard lock(error_mutex);
    if (!error) error = std::current_exception();
  }
  rank.comm->abort();
  results.close();
}

void Executor::Group::start(const Checkpoint* checkpoint) {
  for (auto& rank : ranks) {
    try {
      rank->thread = std::thread([this, &rank = *rank, checkpoint] { run_rank(rank, checkpoint); });
      if (rank->comm->rank() == 0 || options.gpu_library == nullptr) continue;
      rank->watcher = std::thread([this, &rank = *rank] { watch(rank, rank.steps); });
    } catch (const std::system_error& error) {
      // Those that run must not wait for this one.
      for (auto& other : ranks) other->comm->abort();
      throw Error(fmt::format("The thread of rank {} cannot be started: {}{}.", rank->comm->rank(),
                              error.what(),
                              ranks.size() > 1 ? "; choose a smaller --tensor-parallel-size" : ""));
    }
  }
}

std::unique_ptr<RankRunner> Executor::Group::make_runner(Rank& rank, ThreadPool& pool,
                                                         std::optional<Stream>& stream) {
  if (options.gpu_library != nullptr) {
    const GpuRank gpu{options.gpu_library.get(), rank.comm->rank(), options.gpu_rank_bytes};
    return std::make_unique<GpuRunner>(options.runner, gpu, *rank.comm, pool);
  }
  stream.emplace(pool, options.isa);
  return std::make_unique<ModelRunner>(options.runner, *rank.comm, *stream);
}

void Executor::Group::run_rank(Rank& rank, const Checkpoint* checkpoint) {
  std::optional<ThreadPool> pool;
  std::optional<Stream> stream;
  std::unique_ptr<RankRunner> runner;
  try {
    const int index = rank.comm->rank();
    pool.emplace(options.threads_per_rank,
                 cpus_of_rank(index, options.threads_per_rank, options.tensor_parallel_size));
    runner = make_runner(rank, *pool, stream);
    runner->load(checkpoint, index == 0 ? options.on_progress : ProgressCallback());
    // What went wrong at the start of a group comes out here, and not with the first request.
    rank.comm->barrier();
  } catch (...) {
    fail(rank);
    runner.reset();
  }
  loaded.count_down();
  if (!runner) return;
  try {
    serve(rank, *runner);
  } catch (...) {
    fail(rank);
  }
}

void Executor::Group::serve(Rank& rank, RankRunner& runner) {
  while (std::optional<Batch> batch = rank.batches.pop()) {
    std::unique_ptr<PendingStep> step = runner.launch(**batch);
    if (rank.comm->rank() == 0) {
      results.push(std::move(step));
    } else if (options.gpu_library != nullptr) {
      rank.steps.push(std::move(step));
    }
  }
  if (rank.comm->rank() == 0) results.close();
}

void Executor::Group::watch(Rank& rank, Steps& steps) {
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

Executor::Executor(const ExecutorOptions& options, const Checkpoint* checkpoint)
    : group_(std::make_unique<Group>(options)) {
  const int size = options.tensor_parallel_size;
  std::vector<std::unique_ptr<Communicator>> comms;
  if (size == 1) {
    comms.push_back(make_single_communicator());
  } else if (options.gpu_library != nullptr) {
    std::vector<int> gpus(static_cast<size_t>(size));
    std::iota(gpus.begin(), gpus.end(), 0);
    comms = options.gpu_library->make_communicators(gpus);
  } else {
    comms = make_local_communicators(size);
  }
  for (auto& comm : comms) {
    group_->ranks.push_back(std::make_unique<Group::Rank>());
    group_->ranks.back()->comm = std::move(comm);
  }
  group_->start(checkpoint);
  group_->loaded.wait();
  group_->rethrow_error();
}

Executor::~Executor() {
  for (auto& rank : group_->ranks) rank->batches.close();
  // Nobody asks for the last steps any more, but a GPU that fails in one leaves the others waiting.
  group_->watch(*group_->ranks.front(), group_->results);
}

void Executor::submit(std::shared_ptr<const ScheduledBatch> batch) {
  for (auto& rank : group_->ranks) rank->batches.push(batch);
}

StepOutput Executor::wait() {
  std::optional<std::unique_ptr<PendingStep>> step = group_->results.pop();
  if (!step) {
    group_->rethrow_error();
    check(false, "the executor was waited for after it was closed");
  }
  try {
    return (*step)->wait();
  } catch (...) {
    group_->fail(*group_->ranks.front());
    // The first error: a rank that fails takes the others with it.
    group_->rethrow_error();
    throw;
  }
}

}  // namespace quire
