#include "runner/stage_link.h"

#include <optional>
#include <utility>

#include "quire/error.h"

namespace quire {
namespace {

template <typename T>
T pop(BlockingQueue<T>& queue) {
  std::optional<T> item = queue.pop();
  if (!item) throw Error("A rank stopped because a rank of another stage failed.");
  return std::move(*item);
}

}  // namespace

void StageLink::offer(DeviceStream& stream, const void* from) {
  offers_.push({from, stream.record(EventWait::kSleep)});
  ++num_untaken_;
}

void StageLink::await_taken(DeviceStream& stream, size_t keep) {
  for (; num_untaken_ > keep; --num_untaken_) stream.wait_for(*pop(taken_));
}

void StageLink::take(DeviceStream& stream, void* to, size_t bytes) {
  const Offer offer = pop(offers_);
  stream.wait_for(*offer.ready);
  stream.copy_on_device(to, offer.from, bytes);
  taken_.push(stream.record(EventWait::kSleep));
}

void StageLink::close() {
  offers_.close();
  taken_.close();
}

}  // namespace quire
