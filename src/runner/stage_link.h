#pragma once
// The way from a rank on one GPU to a rank on another one, for what a stage hands on.
//
// The sender keeps what it offers unchanged until it was taken. GPUs wait for each other by events,
// or in NCCL where the ranks are in two processes. In one process a host waits only until the other
// one has queued its part, so both may be steps ahead of their GPUs; of two processes no host
// waits. Thread safety: one thread sends, one receives; close() from any thread.
#include <cstddef>
#include <memory>
#include <vector>

#include "core/device_library.h"
#include "dist/communicator.h"

namespace quire {

class StageLink {
 public:
  StageLink() = default;
  virtual ~StageLink() = default;
  StageLink(const StageLink&) = delete;
  StageLink& operator=(const StageLink&) = delete;

  // By the sender: `from`, `bytes` long, is ready when what is queued on `stream` by now is done.
  virtual void offer(DeviceStream& stream, const void* from, size_t bytes) = 0;
  // By the sender: what is queued on `stream` after this begins when all offers but the newest
  // `keep` were taken.
  virtual void await_taken(DeviceStream& stream, size_t keep) = 0;
  // By the receiver: queues the copy of the oldest offer, of as many bytes, to `to` on its own GPU.
  virtual void take(DeviceStream& stream, void* to, size_t bytes) = 0;
  // Ends it: who waits for the other one, now or later, throws Error, or its GPU goes on with
  // nothing.
  virtual void close() = 0;
};

// Both ranks are threads of this process.
std::unique_ptr<StageLink> make_stage_link();
// One end: `pair` is this rank's part in a group of the two, of which rank 0 sends and rank 1
// receives. Its tensors go over a stream of their own on GPU `gpu`, so that what a rank computes
// does not wait for the other process. At the end close() has to be called before memory of the GPU
// is freed: what nobody has taken would keep it.
std::unique_ptr<StageLink> make_node_stage_link(std::unique_ptr<Communicator> pair,
                                                std::shared_ptr<DeviceLibrary> library, int gpu);

// Those of one rank; null where it has none.
struct StageLinks {
  StageLink* from_previous = nullptr;
  StageLink* to_next = nullptr;
  StageLink* ids_from_last = nullptr;  // of the first stage
  StageLink* ids_to_first = nullptr;   // of the last
  // Where a drafter is on the first stage: its drafts to the last.
  StageLink* drafts_to_last = nullptr;
  StageLink* drafts_from_first = nullptr;
  // Where that is a head: what it sees of the layers of the stages behind the first.
  StageLink* taps_to_first = nullptr;
  std::vector<StageLink*> taps_from;  // of the first: by stage
};

}  // namespace quire
