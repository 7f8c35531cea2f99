#pragma once
// An executor whose ranks are threads of this process: one worker for each rank, fed with batches
// from a queue. With several nodes it has the ranks of this node; on node 0 it also sends each
// batch to the other nodes, which get it from next_batch() of their NodeGroup and submit it. On
// GPUs each rank except the one that reports has a second thread, which waits for the rank's steps
// and so notices one that fails.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/cpu_placement.h"
#include "base/memory_reserve.h"
#include "cluster/node_group.h"
#include "core/device_library.h"
#include "loader/checkpoint.h"
#include "quire/engine_config.h"
#include "runner/executor.h"
#include "runner/rank_runner.h"

namespace quire {

struct ThreadExecutorOptions {
  RunnerOptions runner;
  int tensor_parallel_size = 1;
  int pipeline_parallel_size = 1;
  int threads_per_rank = 1;
  Isa isa = Isa::kScalar;  // one that the CPU supports
  // With a library, the i-th rank of this process, counted stage by stage, runs on GPU first_gpu +
  // i and reserves the bytes of its stage on it.
  std::shared_ptr<DeviceLibrary> gpu_library;
  int first_gpu = 0;
  std::vector<size_t> gpu_rank_bytes;
  std::shared_ptr<cluster::NodeGroup> nodes;  // null: all ranks are here
  // The group of nodes ends when a rank here has computed for this long and got nowhere; on GPUs
  // five times as long. On the CPU a rank gets on with each task of a loop, which takes a few
  // seconds at most, on a GPU only with a whole step. If the rank does not come back after that,
  // the process ends, so that a launcher can start the group again.
  double stall_s = 60;
  // Called with a line for the user: on node 0 about how GPUs of several processes talk, on any
  // node, from any thread, before the process ends because a rank does not come back. May be empty.
  std::function<void(const std::string&)> on_message;
  // Of the ranks of this process, counted stage by stage: their pools' threads are pinned, and
  // ranks on the CPU have their memory on its nodes. Empty: wherever the system likes.
  std::vector<CpuPlacement> places;
  ProgressCallback on_progress;
  // Called when a rank or the group of nodes has failed; from any thread, perhaps more than once.
  // May be empty.
  std::function<void()> on_failure;
  MemoryReserve* memory_reserve = nullptr;  // of the ranks' steps; outlives the executor
};

// Starts the ranks and loads the weights (from `checkpoint`, null for dummy weights). Throws the
// first error of any rank.
std::unique_ptr<Executor> make_thread_executor(const ThreadExecutorOptions& options,
                                               const Checkpoint* checkpoint);

}  // namespace quire
