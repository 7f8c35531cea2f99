#include "runner/thread_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <latch>
#include <limits>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/blocking_queue.h"
#include "base/check.h"
#include "base/cpu_placement.h"
#include "base/memory_reserve.h"
#include "base/thread_pool.h"
#include "dist/communicator.h"
#include "quire/error.h"
#include "request/batch_encoding.h"
#include "runner/gpu_runner.h"
#include "runner/model_runner.h"
#include "runner/model_support.h"
#include "runner/node_stalls.h"
#include "runner/rank_activity.h"
#include "runner/rank_places.h"
#include "runner/stage_drafts.h"
#include "runner/stage_links.h"
#include "runner/stage_loads.h"

namespace quire {
namespace {

void throw_failure_of(const cluster::NodeGroup& nodes) {
  if (const auto failure = nodes.failure()) throw Error(*failure);
}

class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(const ThreadExecutorOptions& options);
  ~ThreadExecutor() override;

  // Starts the ranks' threads and waits until they have loaded. Called once, before all else;
  // throws the first error of any rank.
  void start(const Checkpoint* checkpoint);
  void submit(std::shared_ptr<const ScheduledBatch> batch) override;
  StepOutput wait() override;
  std::vector<StageLoad> stages() const override;
  void check_health() override { rethrow_error(); }

 private:
  using Batch = std::shared_ptr<const ScheduledBatch>;
  using Steps = BlockingQueue<std::unique_ptr<PendingStep>>;

  struct Rank {
    int index = 0;  // counted stage by stage
    std::unique_ptr<Communicator> tensor;
    std::unique_ptr<Communicator> pipeline;
    StageLinks links;  // on GPUs
    BlockingQueue<Batch> batches;
    std::thread thread;
    std::optional<ThreadPool> pool;  // from the time that it loads
    RankActivity activity;
    // Only for ranks on GPUs that do not report. The engine does not ask for their steps' results,
    // so a thread watches how the steps end. When a GPU fails, the other ranks wait for it until
    // they are aborted.
    Steps steps;
    std::thread watcher;
    std::atomic<int64_t> num_watched = 0;  // steps that ended well
    std::atomic<int64_t> num_steps = 0;
    std::atomic<double> busy_s = 0;

    RankGroups groups() const { return {*tensor, *pipeline}; }
    // Whether the outputs of the steps are taken from this rank.
    bool reports() const { return tensor->rank() == 0 && groups().is_last_stage(); }
  };

  void make_ranks();
  // A rank's index among those in this process.
  int place_of(const Rank& rank) const { return places_.place_of(rank.index); }
  void start_threads(Rank& rank, const Checkpoint* checkpoint);
  // With nodes: notices ranks that do not get on.
  void watch_for_stalls();
  // Binds the rank's thread, which calls it, and its memory. Returns where its pool runs.
  CpuPlacement take_place(const Rank& rank) const;
  // What the rank calls while it loads, which ends where another rank or node has failed.
  ProgressCallback progress_of(const Rank& rank);
  // The body of a rank's thread.
  void run_rank(Rank& rank, const Checkpoint* checkpoint);
  std::unique_ptr<RankRunner> make_runner(Rank& rank, ThreadPool& pool,
                                          std::optional<Stream>& stream);
  void serve(Rank& rank, RankRunner& runner);
  // Of the stages whose first rank is in this process.
  std::vector<LoadOfStage> stages_here() const;
  // Tells node 0 of them.
  void report_stages();
  // Whether GPUs read what those of other stages have: on GPUs with several stages.
  bool hands_over() const { return on_gpus() && options_.pipeline_parallel_size > 1; }
  // Returns when no rank queues copies from another's memory any more, and all of them are done:
  // before that no runner may go, whether steps have failed or not.
  void part(RankRunner& runner);
  // In the place of part(), for a rank that has no runner.
  void miss_parting() {
    ended_.count_down();
    drained_.count_down();
  }
  bool on_gpus() const { return options_.gpu_library != nullptr; }
  // A step of a rank, on the CPU timed.
  std::unique_ptr<PendingStep> launch(Rank& rank, RankRunner& runner,
                                      const ScheduledBatch& batch) const;
  // Waits for steps of `rank`, until their queue is closed or one failed. The body of a watcher.
  void watch(Steps& steps, Rank& rank);
  // Returns when the part of the earlier stages that are here of the steps that were waited for has
  // ended well, or a rank has failed: a GPU may go on with what a broken one has left. Another
  // process says that it fails before it ends what its GPUs send.
  void await_earlier_stages();
  // Whether the rank, on a GPU, has the drafter of a rank that reports.
  bool drafts_for_another(const Rank& rank) const {
    return options_.runner.draft && rank.tensor->rank() == 0 && rank.groups().is_first_stage() &&
           !rank.reports();
  }
  // Adds to a step's result what its drafts took on another GPU. On GPUs nothing else goes over the
  // pipeline's communicators.
  void take_draft_times(Rank& reporting, StepOutput& output);
  // Tells the user how GPUs of several processes talk.
  void tell_ways() const;
  // Keeps the first error and ends all ranks. To be called in a catch block.
  void fail();
  // The same when the group of nodes has failed.
  void fail_with_nodes();
  // Ends the group of nodes with the first error.
  void tell_nodes();
  // Wakes the ranks that wait for another.
  void abort_ranks();
  void rethrow_error();

  const ThreadExecutorOptions options_;
  const RankPlaces places_;
  std::vector<std::unique_ptr<StageLink>> links_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::latch loaded_;   // every rank has loaded its weights, or failed
  std::latch ended_;    // of part(): every rank has served
  std::latch drained_;  // and its GPU is done
  Steps results_;
  int64_t num_waited_ = 0;  // of the engine's thread
  std::mutex error_mutex_;
  std::exception_ptr error_;
  RankActivity waiting_;                // of the engine's thread, for a step of this process
  std::unique_ptr<NodeStalls> stalls_;  // with nodes
};

// More than an engine makes, with room for those that a watcher still counts.
constexpr int64_t kAllSteps = std::numeric_limits<int64_t>::max() / 2;

ptrdiff_t num_ranks_here(const ThreadExecutorOptions& options) {
  const int num_nodes = options.nodes ? options.nodes->num_nodes() : 1;
  return ptrdiff_t{options.tensor_parallel_size} * options.pipeline_parallel_size / num_nodes;
}

// Threads that work at once: on GPUs those that launch steps.
int num_threads_here(const ThreadExecutorOptions& options) {
  const int threads = options.gpu_library == nullptr ? options.threads_per_rank : 1;
  return static_cast<int>(num_ranks_here(options)) * threads;
}

ThreadExecutor::ThreadExecutor(const ThreadExecutorOptions& options)
    : options_(options),
      places_(options.nodes, options.gpu_library, options.first_gpu, num_threads_here(options)),
      loaded_(num_ranks_here(options)),
      ended_(num_ranks_here(options)),
      drained_(num_ranks_here(options)) {
  make_ranks();
  if (hands_over()) {
    links_ =
        make_stage_links(places_, options_.tensor_parallel_size, options_.pipeline_parallel_size,
                         options_.runner.draft, [this](int rank) -> StageLinks& {
                           const int place = places_.place_of(rank);
                           return ranks_[static_cast<size_t>(place)]->links;
                         });
  }
  if (!options_.nodes) return;
  tell_ways();
  options_.nodes->on_failure([this] { fail_with_nodes(); });
}

void ThreadExecutor::report_stages() {
  options_.nodes->on_report(
      [this] { return encode_stage_loads(stalls_->progress(), stages_here()); });
}

void ThreadExecutor::make_ranks() {
  const int width = options_.tensor_parallel_size;
  const int num_ranks = width * options_.pipeline_parallel_size;
  std::vector<std::unique_ptr<Rank>> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    all.push_back(std::make_unique<Rank>());
    all.back()->index = rank;
  }
  const auto join_group = [&](uint8_t group, int first, int last, int stride, auto member) {
    std::vector<int> members;
    for (int rank = first; rank < last; rank += stride) members.push_back(rank);
    auto communicators = places_.make_group(group, members);
    for (size_t i = 0; i < members.size(); ++i) {
      if (!communicators[i]) continue;
      Rank& rank = *all[static_cast<size_t>(members[i])];
      rank.*member = options_.nodes && !on_gpus()
                         ? watch_communicator(std::move(communicators[i]), rank.activity)
                         : std::move(communicators[i]);
    }
  };
  for (int first = 0; first < num_ranks; first += width) {
    join_group(kTensorGroup, first, first + width, 1, &Rank::tensor);
  }
  for (int first = 0; first < width; ++first) {
    join_group(kPipelineGroup, first, num_ranks, width, &Rank::pipeline);
  }
  for (auto& rank : all) {
    if (places_.is_here(rank->index)) ranks_.push_back(std::move(rank));
  }
}

ThreadExecutor::~ThreadExecutor() {
  for (auto& rank : ranks_) rank->batches.close();
  // Nobody asks for the last steps any more, but a GPU that fails in one leaves the others waiting.
  if (std::ranges::none_of(ranks_, [](const auto& rank) { return rank->reports(); })) {
    results_.close();
  }
  watch(results_, *ranks_.back());
  for (auto& rank : ranks_) {
    if (rank->thread.joinable()) rank->thread.join();
    rank->steps.close();
    if (rank->watcher.joinable()) rank->watcher.join();
  }
  if (!options_.nodes) return;
  // Until here a node that fails has to end what a GPU waits for.
  options_.nodes->on_failure({});
  if (options_.nodes->node() == 0) {
    options_.nodes->end();
  } else {
    options_.nodes->on_report({});
  }
}

void ThreadExecutor::fail() {
  {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
  if (options_.nodes) tell_nodes();
  abort_ranks();
  results_.close();
  if (options_.on_failure) options_.on_failure();
}

void ThreadExecutor::tell_nodes() {
  try {
    rethrow_error();
  } catch (const std::exception& error) {
    options_.nodes->fail(
        fmt::format("Node {} has failed: {}", options_.nodes->node(), error.what()));
  }
}

void ThreadExecutor::fail_with_nodes() {
  try {
    throw Error(options_.nodes->failure().value_or(""));
  } catch (...) {
    fail();
  }
}

void ThreadExecutor::abort_ranks() {
  for (auto& rank : ranks_) {
    rank->tensor->abort();
    rank->pipeline->abort();
  }
  for (auto& link : links_) link->close();
  for (auto& rank : ranks_) {
    rank->num_watched = kAllSteps;
    rank->num_watched.notify_all();
  }
}

void ThreadExecutor::start(const Checkpoint* checkpoint) {
  for (auto& rank : ranks_) {
    try {
      start_threads(*rank, checkpoint);
    } catch (const std::system_error& error) {
      // Those that run must not wait for this one, nor for those behind it.
      for (auto& other : ranks_) {
        if (!other->thread.joinable()) miss_parting();
      }
      abort_ranks();
      results_.close();
      throw Error(
          fmt::format("The thread of rank {} cannot be started: {}{}.", rank->index, error.what(),
                      ranks_.size() > 1
                          ? "; choose a smaller --tensor-parallel-size or --pipeline-parallel-size"
                          : ""));
    }
  }
  loaded_.wait();
  rethrow_error();
  if (!options_.nodes) return;
  options_.nodes->agree_least(0);  // all have loaded
  watch_for_stalls();
  if (options_.nodes->node() != 0) report_stages();
}

void ThreadExecutor::watch_for_stalls() {
  constexpr int kTimesOnGpus = 5;
  std::vector<WatchedRank> ranks;
  for (const auto& rank : ranks_) ranks.push_back({rank->index, &rank->activity, &*rank->pool});
  stalls_ = std::make_unique<NodeStalls>(
      NodeStallsOptions{.nodes = options_.nodes.get(),
                        .ranks = std::move(ranks),
                        .waiting = &waiting_,
                        .limit_s = on_gpus() ? options_.stall_s * kTimesOnGpus : options_.stall_s,
                        .on_message = options_.on_message});
}

void ThreadExecutor::start_threads(Rank& rank, const Checkpoint* checkpoint) {
  rank.thread = std::thread([this, &rank, checkpoint] { run_rank(rank, checkpoint); });
  if (rank.reports() || !on_gpus()) return;
  rank.watcher = std::thread([this, &rank] { watch(rank.steps, rank); });
}

std::unique_ptr<RankRunner> ThreadExecutor::make_runner(Rank& rank, ThreadPool& pool,
                                                        std::optional<Stream>& stream) {
  if (options_.gpu_library != nullptr) {
    const auto stage = static_cast<size_t>(rank.pipeline->rank());
    const GpuRank gpu{options_.gpu_library.get(), places_.gpu_of(rank.index),
                      options_.gpu_rank_bytes.at(stage)};
    RunnerOptions runner = options_.runner;
    // NCCL's kernels between processes keep some multiprocessors while a receiver is not ready: it
    // may be one that waits for a kernel which needs all of them. All ranks have to decide alike.
    if (options_.nodes && hands_over()) {
      runner.model.fills_gpu = false;
      if (runner.draft) runner.draft->model.fills_gpu = false;
    }
    return std::make_unique<GpuRunner>(runner, gpu, rank.groups(), rank.links, pool);
  }
  stream.emplace(pool, options_.isa);
  return std::make_unique<ModelRunner>(options_.runner, rank.groups(), *stream);
}

void ThreadExecutor::run_rank(Rank& rank, const Checkpoint* checkpoint) {
  std::optional<Stream> stream;
  std::unique_ptr<RankRunner> runner;
  try {
    const CpuPlacement placement = take_place(rank);
    rank.pool.emplace(options_.threads_per_rank, placement.cpus, options_.memory_reserve);
    runner = make_runner(rank, *rank.pool, stream);
    runner->load(checkpoint, progress_of(rank));
    // Errors of a group's start are thrown here, not with the first request.
    rank.tensor->barrier();
  } catch (...) {
    fail();
    runner.reset();
  }
  loaded_.count_down();
  if (!runner) return miss_parting();
  try {
    serve(rank, *runner);
  } catch (...) {
    fail();
  }
  if (hands_over()) part(*runner);
}

ProgressCallback ThreadExecutor::progress_of(const Rank& rank) {
  return [this, tells = place_of(rank) == 0 && options_.on_progress](std::string_view phase,
                                                                     int64_t done, int64_t total) {
    if (tells) options_.on_progress(phase, done, total);
    rethrow_error();
  };
}

CpuPlacement ThreadExecutor::take_place(const Rank& rank) const {
  if (options_.places.empty()) return {};
  const CpuPlacement& place = options_.places[static_cast<size_t>(place_of(rank))];
  // Before the pool starts its threads, which are bound as this one is. The node of a GPU's rank
  // would be that of its GPU, whichever that is.
  if (options_.gpu_library == nullptr) run_at(place);
  return place;
}

void ThreadExecutor::part(RankRunner& runner) {
  ended_.arrive_and_wait();
  try {
    runner.finish();
  } catch (const Error&) {
    // It was reported when it happened.
  }
  drained_.arrive_and_wait();
  // Other processes may never take the last ids, nor this one theirs, and no process frees memory
  // of a GPU before that is over.
  if (options_.nodes && options_.nodes->node() == 0) options_.nodes->end();
  for (auto& link : links_) link->close();
}

std::unique_ptr<PendingStep> ThreadExecutor::launch(Rank& rank, RankRunner& runner,
                                                    const ScheduledBatch& batch) const {
  using Clock = std::chrono::steady_clock;
  const ActiveStep active(rank.activity);
  const double waited_before = runner.waited_s();
  const Clock::time_point begin = Clock::now();
  std::unique_ptr<PendingStep> step = runner.launch(batch);
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  if (batch.empty()) return step;
  const double busy_s = elapsed - (runner.waited_s() - waited_before);
  if (!on_gpus()) rank.busy_s = rank.busy_s + busy_s;
  ++rank.num_steps;
  return step;
}

std::vector<LoadOfStage> ThreadExecutor::stages_here() const {
  std::vector<LoadOfStage> stages;
  for (const auto& rank : ranks_) {
    if (rank->tensor->rank() != 0) continue;
    stages.push_back({rank->groups().stage(), {rank->num_steps, rank->busy_s}});
  }
  return stages;
}

std::vector<StageLoad> ThreadExecutor::stages() const {
  const int num_stages = options_.pipeline_parallel_size;
  const bool has_all = !options_.nodes || options_.nodes->node() == 0;
  if (num_stages == 1 || !has_all) return {};
  std::vector<StageLoad> stages(static_cast<size_t>(num_stages));
  for (const auto& [stage, load] : stages_here()) stages[static_cast<size_t>(stage)] = load;
  for (int other = 1; options_.nodes && other < options_.nodes->num_nodes(); ++other) {
    take_stage_loads(options_.nodes->report_of(other), stages);
  }
  return stages;
}

void ThreadExecutor::serve(Rank& rank, RankRunner& runner) {
  const MemoryReserve::User user(options_.memory_reserve);
  while (std::optional<Batch> batch = rank.batches.pop()) {
    std::unique_ptr<PendingStep> step = launch(rank, runner, **batch);
    if (rank.reports()) {
      results_.push(std::move(step));
    } else if (on_gpus()) {
      rank.steps.push(std::move(step));
    }
  }
  if (rank.reports()) results_.close();
}

void ThreadExecutor::watch(Steps& steps, Rank& rank) {
  while (std::optional<std::unique_ptr<PendingStep>> step = steps.pop()) {
    try {
      const StepTimes times = [&] {
        const ActiveStep active(rank.activity);
        return (*step)->finish();
      }();
      rank.busy_s = rank.busy_s + times.gpu_s;
      if (drafts_for_another(rank)) send_step_times(*rank.pipeline, times);
      ++rank.num_watched;
      rank.num_watched.notify_all();
    } catch (...) {
      // While the step exists: freeing its memory may wait for the GPUs of all ranks.
      fail();
      return;
    }
  }
}

void ThreadExecutor::submit(std::shared_ptr<const ScheduledBatch> batch) {
  if (options_.nodes && options_.nodes->node() == 0) {
    options_.nodes->send_batch(encode_batch(*batch));
  }
  for (auto& rank : ranks_) rank->batches.push(batch);
}

StepOutput ThreadExecutor::wait() {
  std::optional<std::unique_ptr<PendingStep>> step = [this] {
    const ActiveStep active(waiting_);
    return results_.pop();
  }();
  if (!step) {
    rethrow_error();
    check(false, "the executor was waited for after it was closed");
  }
  try {
    const auto reporting = std::ranges::find_if(ranks_, [](const auto& r) { return r->reports(); });
    StepOutput output = [&] {
      const ActiveStep active((*reporting)->activity);
      return (*step)->wait();
    }();
    if (on_gpus()) (*reporting)->busy_s = (*reporting)->busy_s + output.gpu_s;
    ++num_waited_;
    if (hands_over()) await_earlier_stages();
    // What a GPU computed from a sum that was ended, here or in another process, is nothing.
    rethrow_error();
    if (options_.nodes) throw_failure_of(*options_.nodes);
    take_draft_times(**reporting, output);
    return output;
  } catch (...) {
    fail();
    // The first error: a rank that fails takes the others with it.
    rethrow_error();
    throw;
  }
}

void ThreadExecutor::await_earlier_stages() {
  for (const auto& rank : ranks_) {
    if (rank->groups().is_last_stage()) continue;
    std::atomic<int64_t>& watched = rank->num_watched;
    for (int64_t seen = watched; seen < num_waited_; seen = watched) watched.wait(seen);
  }
  rethrow_error();
}

void ThreadExecutor::take_draft_times(Rank& reporting, StepOutput& output) {
  if (!hands_over() || !options_.runner.draft) return;
  const StepTimes times = receive_step_times(*reporting.pipeline);
  output.draft_s = times.drafts.drafting_s;
  output.draft_reading_s = times.drafts.reading_s;
  output.is_first_of_kind |= times.has_first_drafts_of_kind;
}

void ThreadExecutor::tell_ways() const {
  if (!options_.on_message || !on_gpus() || !options_.nodes || options_.nodes->node() != 0) return;
  // Node 0 has the first rank of the last stage.
  const auto rank = std::ranges::find_if(ranks_, [](const auto& r) { return r->reports(); });
  const std::string ways = describe_ways(places_, options_.tensor_parallel_size,
                                         options_.pipeline_parallel_size, *(*rank)->tensor);
  if (!ways.empty()) options_.on_message("node 0: " + ways);
}

void ThreadExecutor::rethrow_error() {
  const std::lock_guard lock(error_mutex_);
  if (error_) std::rethrow_exception(error_);
}

}  // namespace

std::unique_ptr<Executor> make_thread_executor(const ThreadExecutorOptions& options,
                                               const Checkpoint* checkpoint) {
  // Before a GPU's memory is taken and CUDA is started, which takes longer than this check. A fault
  // of one rank's weights is a fault of all.
  if (options.gpu_library != nullptr && checkpoint != nullptr) {
    check_weights_of(options.runner.model, *checkpoint);
  }
  auto executor = std::make_unique<ThreadExecutor>(options);
  executor->start(checkpoint);
  return executor;
}

}  // namespace quire
