#pragma once
// Ranks in several processes, which exchange data through memory that all of them map: what NCCL is
// to GPUs.
//
// From each rank to each other one there is a channel, which holds one piece of a message until it
// was received. Sums are taken in rank order. Thread safety: as for every Communicator.
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "dist/communicator.h"

namespace quire::simulated {

// Memory that the processes of one group find by its id. Thread safety: free.
class SharedMemory {
 public:
  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Only while this exists.
  std::vector<std::byte> id() const;

 private:
  int file_;
};

// Rank `rank` of a group of `size`, whose memory has the id. On the CPU: for the thread of a
// stream. Throws Error where the process that made the memory has gone.
std::unique_ptr<Communicator> make_shared_communicator(std::span<const std::byte> id, int rank,
                                                       int size);

}  // namespace quire::simulated
