#include "runner/rank_activity.h"

#include <utility>

namespace quire {
namespace {

class WatchedCommunicator final : public Communicator {
 public:
  WatchedCommunicator(std::unique_ptr<Communicator> communicator, RankActivity& activity)
      : communicator_(std::move(communicator)), activity_(activity) {}

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  void all_reduce_sum(Stream& stream, const Tensor& tensor) override {
    const Wait wait(activity_);
    communicator_->all_reduce_sum(stream, tensor);
  }
  void all_gather_columns(Stream& stream, const Tensor& input, const Tensor& output) override {
    const Wait wait(activity_);
    communicator_->all_gather_columns(stream, input, output);
  }
  void broadcast(Stream& stream, const Tensor& tensor, int root) override {
    const Wait wait(activity_);
    communicator_->broadcast(stream, tensor, root);
  }
  void send(Stream& stream, const Tensor& tensor, int to) override {
    const Wait wait(activity_);
    communicator_->send(stream, tensor, to);
  }
  void receive(Stream& stream, const Tensor& tensor, int from) override {
    const Wait wait(activity_);
    communicator_->receive(stream, tensor, from);
  }
  void barrier() override {
    const Wait wait(activity_);
    communicator_->barrier();
  }
  void abort() override { communicator_->abort(); }

 private:
  class Wait {
   public:
    explicit Wait(RankActivity& activity) : activity_(activity) { activity_.begin_wait(); }
    ~Wait() { activity_.end_wait(); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    RankActivity& activity_;
  };

  std::unique_ptr<Communicator> communicator_;
  RankActivity& activity_;
};

}  // namespace

std::unique_ptr<Communicator> watch_communicator(std::unique_ptr<Communicator> communicator,
                                                 RankActivity& activity) {
  return std::make_unique<WatchedCommunicator>(std::move(communicator), activity);
}

}  // namespace quire
