#pragma once
// The NCCL communicators of those ranks of a group that are in this process.
//
// They start in the background, which takes seconds, and with ranks in other processes as long as
// these take to come. Thread safety: each rank calls from its own thread; abort() from any thread.
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/device_library.h"
#include "dist/nccl_library_cuda.h"

namespace quire {

class NcclRanks {
 public:
  // All ranks of a group; rank r is on device devices[r].
  NcclRanks(std::shared_ptr<const NcclLibrary> library, std::span<const int> devices);
  // Some of them; part.id is that of make_nccl_group_id().
  NcclRanks(std::shared_ptr<const NcclLibrary> library, const GroupPart& part);
  // Where other processes have not come, or NCCL takes more than two seconds to abort, the thread
  // that waits for that stays until the process ends: nothing else ends it.
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  // Returns when the ranks have started, or were aborted. Throws Error where they cannot start, and
  // where other processes do not come within part.timeout_s of the call.
  void wait_until_started() const;

  // Calls queue(library, comm), which queues a collective, for the rank at `place` among those that
  // are here. False when the ranks have been aborted. Requires wait_until_started().
  template <typename Queue>
  bool call(size_t place, std::string_view what, const Queue& queue) {
    Comm& comm = started_->comms[place];
    const std::lock_guard lock(comm.mutex);
    if (comm.nccl == nullptr) return false;
    const NcclLibrary& library = *started_->library;
    library.check_nccl(queue(library, comm.nccl), what);
    return true;
  }

  // Ends the kernels that wait. Returns at once: NCCL goes on with it for as long as CUDA graphs
  // exist that its kernels are in, and these go with the rank that is freed by this.
  void abort();

 private:
  // What ncclCommInitAll and its like fill.
  using Init = std::function<void(std::span<ncclComm_t>)>;
  struct Comm {
    ncclComm_t nccl = nullptr;
    std::timed_mutex mutex;
  };
  // What the thread that starts them has, which may outlive this.
  struct Started {
    Started(std::shared_ptr<const NcclLibrary> library, size_t size)
        : library(std::move(library)), comms(size) {}
    ~Started();
    // Calls init(comms), and keeps what comes of it.
    void start(const Init& init);
    void abort_one(Comm& comm);

    const std::shared_ptr<const NcclLibrary> library;
    std::vector<Comm> comms;
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
    bool is_aborted = false;
    size_t num_aborting = 0;
    std::exception_ptr error;
  };
  // timeout_s: nothing where all ranks are here.
  NcclRanks(std::shared_ptr<const NcclLibrary> library, size_t size, const Init& init,
            std::optional<double> timeout_s);

  std::shared_ptr<Started> started_;
  std::optional<double> timeout_s_;  // for ranks in other processes
  std::thread starter_;
  std::vector<std::thread> aborters_;
};

// As DeviceLibrary::make_group_id(). Throws Error where NCCL is not installed.
std::vector<std::byte> make_nccl_group_id();

}  // namespace quire
