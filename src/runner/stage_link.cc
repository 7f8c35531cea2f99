#include "runner/stage_link.h"

#include <optional>
#include <utility>

#include "base/blocking_queue.h"
#include "quire/error.h"

namespace quire {
namespace {

template <typename T>
T pop(BlockingQueue<T>& queue) {
  std::optional<T> item = queue.pop();
  if (!item) throw Error("A rank stopped because a rank of another stage failed.");
  return std::move(*item);
}

class ThreadStageLink final : public StageLink {
 public:
  void offer(DeviceStream& stream, const void* from, size_t) override {
    offers_.push({from, stream.record(EventWait::kSleep)});
    ++num_untaken_;
  }

  void await_taken(DeviceStream& stream, size_t keep) override {
    for (; num_untaken_ > keep; --num_untaken_) stream.wait_for(*pop(taken_));
  }

  void take(DeviceStream& stream, void* to, size_t bytes) override {
    const Offer offer = pop(offers_);
    stream.wait_for(*offer.ready);
    stream.copy_on_device(to, offer.from, bytes);
    taken_.push(stream.record(EventWait::kSleep));
  }

  void close() override {
    offers_.close();
    taken_.close();
  }

 private:
  struct Offer {
    const void* from = nullptr;
    std::unique_ptr<DeviceEvent> ready;
  };

  BlockingQueue<Offer> offers_;
  BlockingQueue<std::unique_ptr<DeviceEvent>> taken_;
  size_t num_untaken_ = 0;  // as far as the sender knows
};

}  // namespace

std::unique_ptr<StageLink> make_stage_link() {
  return std::make_unique<ThreadStageLink>();
}

}  // namespace quire
