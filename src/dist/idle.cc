#include "base/check.h"
#include "dist/communicator.h"

namespace quire {
namespace {

class IdleCommunicator final : public Communicator {
 public:
  IdleCommunicator(int rank, int size) : rank_(rank), size_(size) {
    check(rank >= 0 && rank < size, "a rank is a place in its group");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_sum(Stream&, const Tensor&) override {}
  void all_gather_columns(Stream&, const Tensor&, const Tensor&) override {}
  void broadcast(Stream&, const Tensor&, int) override {}
  void send(Stream&, const Tensor&, int) override {}
  void receive(Stream&, const Tensor&, int) override {}
  void barrier() override {}
  void abort() override {}

 private:
  int rank_;
  int size_;
};

}  // namespace

std::unique_ptr<Communicator> make_idle_communicator(int rank, int size) {
  return std::make_unique<IdleCommunicator>(rank, size);
}

}  // namespace quire
