#pragma once
// The way from a rank on one GPU to a rank on another one, for what a stage hands on.
//
// The receiver copies what the sender offers, so the sender keeps it unchanged until it was taken.
// GPUs wait for each other by events. A host waits only until the other one has queued its part, so
// both may be steps ahead of their GPUs. Thread safety: one thread sends, one receives; close()
// from any thread.
#include <cstddef>
#include <memory>

#include "base/blocking_queue.h"
#include "core/device_library.h"

namespace quire {

class StageLink {
 public:
  // By the sender: `from` is ready when what is queued on `stream` by now is done.
  void offer(DeviceStream& stream, const void* from);
  // By the sender: what is queued on `stream` after this begins when all offers but the newest
  // `keep` were taken.
  void await_taken(DeviceStream& stream, size_t keep);
  // By the receiver: queues the copy of the oldest offer, `bytes` long, to `to` on its own GPU.
  void take(DeviceStream& stream, void* to, size_t bytes);
  // Ends it: who waits for the other one, now or later, throws Error.
  void close();

 private:
  struct Offer {
    const void* from = nullptr;
    std::unique_ptr<DeviceEvent> ready;
  };

  BlockingQueue<Offer> offers_;
  BlockingQueue<std::unique_ptr<DeviceEvent>> taken_;
  size_t num_untaken_ = 0;  // as far as the sender knows
};

// Those of one rank; null where it has none.
struct StageLinks {
  StageLink* from_previous = nullptr;
  StageLink* to_next = nullptr;
  StageLink* ids_from_last = nullptr;  // of the first stage
  StageLink* ids_to_first = nullptr;   // of the last
};

}  // namespace quire
