#pragma once
// The GPUs of the simulated machine: how many there are, their memory, and which of their runs is
// told to fail.
//
// Environment:
//   QUIRE_SIMULATED_GPUS        how many there are (1)
//   QUIRE_SIMULATED_GPU_MEMORY  bytes that each has (2 GiB)
//   QUIRE_SIMULATED_CAPABILITY  their compute capability, times ten (90)
//   QUIRE_SIMULATED_FAULT       GPU:NAME:NUMBER: the NUMBER-th run of kernel NAME on that GPU, from
//                               1, fails as an illegal access does; with NAME "reserve" that
//                               reservation finds no memory, with "memory_for_KERNEL" the driver
//                               finds none for that launch by itself, with "memory_for_graph" none
//                               for that CUDA graph, with "memory_for_graph_launch" none for that
//                               launch of one
//   QUIRE_SIMULATED_HOLD        GPU:NAME:NUMBER: that run begins when somebody has opened the FIFO
//                               of QUIRE_SIMULATED_HOLD_FIFO for writing and closed it again
//   QUIRE_SIMULATED_PACE        "lazy": a stream works only when somebody waits for it, so the host
//                               is as far ahead as it can be; "instant": kernels do nothing, so
//                               what time is left is the host's, and answers mean nothing
//   QUIRE_SIMULATED_DECODER_STEP  1: they have the kernel of a whole decode step
//   QUIRE_SIMULATED_HOST        the host's name: GPUs of processes with different ones do not reach
//                               each other's memory
//   QUIRE_SIMULATED_MACHINE     a number: in processes that have the same one, the GPUs say that
//                               they are the same (each process has its own)
//   QUIRE_SIMULATED_VERSION     the version of quire that the library says it is of
// Kernels have the names of ops/cuda/kernels.h; a product whose algorithm the stream's table names
// is a "linear_by_table".
// Thread safety: all functions from any thread.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class CudaStream;

namespace simulated {

constexpr int kNumMultiprocessors = 16;

// One run of a kernel; none where the name is empty.
struct Run {
  int gpu = 0;
  std::string name;
  int64_t number = 0;
};

enum class Pace { kSteady, kLazy, kInstant };

struct Settings {
  int num_gpus = 1;
  int64_t memory_bytes = int64_t{2} << 30;
  int compute_capability = 90;
  Run fault;
  Run hold;
  std::string hold_fifo;
  Pace pace = Pace::kSteady;
  bool has_decoder_step = false;
  int64_t machine = 0;  // its process, where none is given

  // Throws Error where a variable makes no sense.
  static Settings from_environment();
};

class Gpu {
 public:
  Gpu(int index, const Settings& settings);

  int index() const { return index_; }
  Pace pace() const { return pace_; }
  bool has_decoder_step() const { return has_decoder_step_; }
  int compute_capability() const { return compute_capability_; }
  std::array<uint8_t, 16> uuid() const;
  int64_t total_bytes() const { return total_bytes_; }
  int64_t free_bytes();
  // False where there are fewer than `bytes` left.
  bool take(int64_t bytes);
  void give_back(int64_t bytes);

  // Counts a run of `name`; true where it is the one that fails.
  bool is_faulty(std::string_view name);
  // Counts a run of `name`, and returns when it may begin.
  void wait_to_begin(std::string_view name);

  void add(CudaStream& stream);
  void remove(CudaStream& stream);
  // Returns when all streams have done what was queued, failed or not: what freeing memory does.
  void finish();

 private:
  const int index_;
  const Pace pace_;
  const bool has_decoder_step_;
  const int compute_capability_;
  const int64_t machine_;
  const int64_t total_bytes_;
  const Run fault_;
  const Run hold_;
  const std::string hold_fifo_;
  std::mutex mutex_;
  int64_t taken_bytes_ = 0;
  int64_t num_runs_ = 0;       // of the kernel that is to fail
  int64_t num_held_runs_ = 0;  // of the one that is to wait
  std::set<CudaStream*> streams_;
};

using Gpus = std::vector<std::unique_ptr<Gpu>>;

}  // namespace simulated
}  // namespace quire
