#pragma once
// The CUDA backend as the rest of quire sees it: a library that is loaded at run time.
//
// One quire works with and without a GPU: nothing outside libquire_cuda.so is linked to CUDA. The
// classes here are implemented in *_cuda.cc files and made by the library's one function. Errors:
// whatever CUDA says is thrown as Error. Thread safety: each class says.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "quire/error.h"

namespace quire {

class Communicator;  // dist/communicator.h: handed through
class CudaStream;    // core/stream_cuda.h
namespace ops {
struct CudaKernels;      // ops/cuda/kernels.h: handed through
class LinearAlgorithms;  // ops/cuda/linear/algorithms.h: handed through
}  // namespace ops

// How a thread waits for an event: spinning, which reacts quickly but keeps a core busy, or asleep.
enum class EventWait { kSpin, kSleep };

// A point in a stream's work. Thread safety: free.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Returns when the work before it is done. Throws Error when that work failed.
  virtual void wait() = 0;
  // GPU time in seconds from `earlier`, an event of the same stream, to this one. Requires that
  // wait() has returned.
  virtual double seconds_since(const DeviceEvent& earlier) const = 0;
};

// Work that was captured from a stream and can be run again. Thread safety: as for DeviceStream.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// A queue of work on one GPU, in order. Thread safety: one thread at a time, the rank's worker.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;

  virtual CudaStream& cuda() = 0;
  // Copies between the GPU and memory from DeviceLibrary::allocate_pinned, queued.
  virtual void copy_to_device(void* to, const void* pinned, size_t bytes) = 0;
  virtual void copy_to_host(void* pinned, const void* from, size_t bytes) = 0;
  // Copies to memory of this GPU from memory of it or of another one, queued. Directly between GPUs
  // where DeviceLibrary::allow_reads() has allowed it, else through the host.
  virtual void copy_on_device(void* to, const void* from, size_t bytes) = 0;
  virtual std::unique_ptr<DeviceEvent> record(EventWait wait) = 0;
  // What is queued after this begins when the work before `event` is done, which may be another
  // GPU's.
  virtual void wait_for(const DeviceEvent& event) = 0;
  // Returns when everything queued is done. Throws Error when it failed.
  virtual void synchronize() = 0;

  // Work queued between the two calls is recorded, not run; end_capture() makes a graph of it.
  virtual void begin_capture() = 0;
  // Throws OutOfDeviceMemory where there is no room for the graph; the capture has ended then, too.
  virtual std::unique_ptr<DeviceGraph> end_capture() = 0;
  // Ends a capture in which something failed.
  virtual void abandon_capture() noexcept = 0;
  virtual void launch(DeviceGraph& graph) = 0;
};

// Host memory that the GPU can read and write directly; zeroed.
class PinnedBuffer {
 public:
  virtual ~PinnedBuffer() = default;
  virtual std::byte* data() = 0;
};

// A GPU has too little free memory, or the host too little for its driver.
class OutOfDeviceMemory : public Error {
 public:
  using Error::Error;
};

struct DeviceInfo {
  std::string name;            // "NVIDIA H200"
  int compute_capability = 0;  // 90: major times ten plus minor
  int num_multiprocessors = 0;
  int64_t l2_bytes = 0;  // of the L2 cache
  int64_t total_bytes = 0;
  std::array<uint8_t, 16> uuid{};  // no other GPU has it; zeros: it is not known
};

// The ranks of a group that are in this process, where others of the group are in other processes.
struct GroupPart {
  int size = 1;                 // of the whole group
  std::vector<int> ranks{};     // of this process: their places in the group
  std::vector<int> indices{};   // of these ranks' GPUs
  std::vector<std::byte> id{};  // what make_group_id() gave in one of the processes
  // Of each of these ranks: what meets the other processes on the host.
  std::vector<std::shared_ptr<Communicator>> hosts{};
  // Two ranks, which only send and receive, each beside another group on its GPU.
  bool is_pair = false;
  // Tells all processes of the group what each of `ranks` says: as many bytes for each, one after
  // the other. Returns what all ranks of the group say, in their order. Every process of the group
  // calls it equally often. Throws Error where another process has failed. Where it is empty, the
  // ranks do not look for a way to each other's memory.
  std::function<std::vector<std::byte>(std::span<const std::byte> mine)> exchange{};
  // How long a rank waits for the other processes to come, in seconds.
  double timeout_s = 120;
};

// Thread safety: all functions from any thread.
class DeviceLibrary {
 public:
  virtual ~DeviceLibrary() = default;

  // The GPUs that CUDA finds, in its order. Empty without a driver.
  virtual std::vector<DeviceInfo> devices() = 0;
  // Memory that is free on a GPU now, in bytes.
  virtual int64_t free_bytes(int index) = 0;
  // Bytes that a rank of a group of `num_ranks` takes on its GPU in addition to reserve().
  virtual int64_t overhead_bytes(int num_ranks) const = 0;
  // Takes `bytes` of a GPU's memory at once. Throws OutOfDeviceMemory where less is free.
  virtual std::unique_ptr<DeviceMemory> reserve(int index, size_t bytes) = 0;
  // Matrix products on the stream look up their algorithms in `algorithms`; null: only in quire's
  // own table.
  virtual std::unique_ptr<DeviceStream> make_stream(
      int index, std::shared_ptr<const ops::LinearAlgorithms> algorithms) = 0;
  virtual std::unique_ptr<PinnedBuffer> allocate_pinned(size_t bytes) = 0;
  // Lets GPU `reader` copy from the memory of GPU `owner` directly, where the hardware can.
  virtual void allow_reads(int reader, int owner) = 0;
  virtual const ops::CudaKernels& kernels() const = 0;
  // A group of ranks that are threads of this process; rank i works on GPU indices[i].
  virtual std::vector<std::unique_ptr<Communicator>> make_communicators(
      std::span<const int> indices) = 0;
  // By which the processes of a new group find each other, at most kMaxGroupIdBytes. One process
  // makes it and tells the others. It serves for one group, as long as the library is there.
  virtual std::vector<std::byte> make_group_id() = 0;
  // The ranks of `part`, in its order. Waits for the other processes only in part.exchange: else a
  // rank waits for them in its first collective.
  virtual std::vector<std::unique_ptr<Communicator>> join_group(const GroupPart& part) = 0;
};

inline constexpr size_t kMaxGroupIdBytes = 255;

// What program and library must agree on: quire's version and a hash of the headers that both are
// compiled with, "0.1.0+0123456789ab". The hash is needed because headers change between versions,
// and a library made from other headers has its functions in other places. The program passes this
// string to the library's one function,
//  extern "C" DeviceLibrary* quire_cuda_library(const char* version),
// which returns null where its own string differs.
std::string device_library_version();

struct LoadedLibrary {
  std::shared_ptr<DeviceLibrary> library;  // null where none works
  // A sentence: why none works, or which file was loaded.
  std::string explanation;
  bool is_fault = false;  // a library was found that should work but does not
};

// Looks for libquire_cuda.so where $QUIRE_CUDA_LIBRARY says (empty: nowhere), else beside the
// program or the libquire.so that this code is in, and where packages put it. The library stays in
// memory until the process ends.
LoadedLibrary load_cuda_library();

}  // namespace quire
