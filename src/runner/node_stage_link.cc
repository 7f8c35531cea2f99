// The way between stages in two processes.
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "base/thread_pool.h"
#include "core/stream.h"
#include "runner/stage_link.h"

namespace quire {
namespace {

constexpr int kSender = 0;
constexpr int kReceiver = 1;

// What tensors go over, beside the stream that computes.
struct SideStream {
  SideStream(DeviceLibrary& library, int gpu)
      : queue(library.make_stream(gpu, nullptr)),
        stream(pool, {.type = DeviceType::kCuda, .index = gpu}, *queue, library.kernels()) {}

  // Goes on when what is queued on `other` by now is done.
  void follow(DeviceStream& other) { queue->wait_for(*other.record(EventWait::kSleep)); }

  ThreadPool pool{1};
  std::unique_ptr<DeviceStream> queue;
  Stream stream;
};

class NodeStageLink final : public StageLink {
 public:
  NodeStageLink(std::unique_ptr<Communicator> pair, std::shared_ptr<DeviceLibrary> library, int gpu)
      : library_(std::move(library)), gpu_(gpu), pair_(std::move(pair)) {}

  void offer(DeviceStream& stream, const void* from, size_t bytes) override {
    SideStream& side = this->side();
    side.follow(stream);
    // It is only read.
    pair_->send(side.stream, bytes_of(const_cast<void*>(from), bytes), kReceiver);
    untaken_.push_back(side.queue->record(EventWait::kSleep));
  }

  void await_taken(DeviceStream& stream, size_t keep) override {
    for (; untaken_.size() > keep; untaken_.pop_front()) stream.wait_for(*untaken_.front());
  }

  void take(DeviceStream& stream, void* to, size_t bytes) override {
    SideStream& side = this->side();
    side.follow(stream);  // what was there may still be read
    pair_->receive(side.stream, bytes_of(to, bytes), kSender);
    stream.wait_for(*side.queue->record(EventWait::kSleep));
  }

  void close() override { pair_->abort(); }

 private:
  static Tensor bytes_of(void* data, size_t bytes) {
    return Tensor(data, DType::kInt8, {static_cast<int64_t>(bytes)});
  }

  // Made by the rank's thread, whose current device is its GPU.
  SideStream& side() {
    if (!side_) side_.emplace(*library_, gpu_);
    return *side_;
  }

  std::shared_ptr<DeviceLibrary> library_;
  int gpu_;
  std::optional<SideStream> side_;
  std::deque<std::unique_ptr<DeviceEvent>> untaken_;
  std::unique_ptr<Communicator> pair_;  // goes before the stream that it was given
};

}  // namespace

std::unique_ptr<StageLink> make_node_stage_link(std::unique_ptr<Communicator> pair,
                                                std::shared_ptr<DeviceLibrary> library, int gpu) {
  return std::make_unique<NodeStageLink>(std::move(pair), std::move(library), gpu);
}

}  // namespace quire
