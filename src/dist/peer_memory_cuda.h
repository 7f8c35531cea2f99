#pragma once
// Memory of several GPUs that all of them write to (dist/one_shot_cuda.h).
//
// Where all ranks are in one process, only this memory is visible to the peers, not what is
// allocated later: freeing memory that peers see waits for them, and they may wait for this rank.
// Where they are in several, GPUs of one process see all of each other's memory. Thread safety:
// abort() from any thread.
#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <vector>

#include "core/device_library.h"
#include "dist/one_shot_cuda.h"

namespace quire {

// Bytes on each rank's device: a region, and behind it 16 MiB for the rank's counter and words.
inline constexpr size_t kPeerMemoryBytes = size_t{2 * kPeerHalfBytes} + (size_t{16} << 20);

class PeerMemory {
 public:
  // All ranks of a group; rank r is on device devices[r]. Null where some of the devices cannot
  // reach each other's memory, or there are more than kMaxPeers. Throws Error when CUDA fails. For
  // tests a device may appear twice.
  static std::unique_ptr<PeerMemory> make(std::span<const int> devices);
  // Those of a group in several processes that are in this one; all processes call it, and
  // part.exchange is called twice, or three times. Null, in each process, also where these are on
  // several hosts or the system does not let them share memory.
  static std::unique_ptr<PeerMemory> join(const GroupPart& part);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Of a rank that is in this process.
  PeerView view(int rank) const;
  PeerWords words(int rank) const;
  // Whether the devices are of one kind, so that each takes a kernel if any does.
  bool is_of_one_kind() const { return is_of_one_kind_; }
  // Kernels that wait for a peer, now or later, trap.
  void abort();

 private:
  // A rank that is here. Its memory is a region, after it the rank's counter, and after that its
  // words.
  struct Place {
    int rank;
    int device;
    cudaMemPool_t pool = nullptr;  // that `memory` is of; null: of none
    void* memory = nullptr;
    void* of_ranks[kMaxPeers] = {};  // every rank's memory, as this device reaches it
    std::vector<void*> opened{};     // those among them that other processes own
  };
  struct Card;

  PeerMemory(std::span<const int> ranks, std::span<const int> devices, int size);
  void allocate_for_threads(Place& place);
  void allocate_for_processes(Place& place);
  void load_kernels() const;
  std::vector<std::byte> describe() const;
  // False where some memory cannot be reached.
  bool open(std::span<const Card> ranks);
  void close();
  const Place& place_of(int rank) const;

  int size_;  // of the whole group
  std::vector<Place> places_;
  bool is_of_one_kind_ = false;
  int* aborted_ = nullptr;  // pinned
};

}  // namespace quire
