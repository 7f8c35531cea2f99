#pragma once
// Whether a rank computes a step, or waits for another rank or a step, and whether it gets on.
//
// Thread safety: any thread.
#include <atomic>
#include <cstdint>
#include <memory>

#include "dist/communicator.h"

namespace quire {

class RankActivity {
 public:
  void begin_step() { ++num_begun_; }
  void end_step() { ++num_ended_; }
  // In turns.
  void begin_wait() { ++num_waits_; }
  void end_wait() { ++num_waits_; }

  bool is_in_step() const { return num_begun_ > num_ended_; }
  bool computes() const { return is_in_step() && num_waits_ % 2 == 0; }
  // Grows when steps and waits begin and end.
  uint64_t num_changes() const { return num_begun_ + num_ended_ + num_waits_; }

 private:
  std::atomic<uint64_t> num_begun_ = 0;
  std::atomic<uint64_t> num_ended_ = 0;
  std::atomic<uint64_t> num_waits_ = 0;  // a wait that has ended counts twice
};

// A step, for as long as the object is there.
class ActiveStep {
 public:
  explicit ActiveStep(RankActivity& activity) : activity_(activity) { activity_.begin_step(); }
  ~ActiveStep() { activity_.end_step(); }
  ActiveStep(const ActiveStep&) = delete;
  ActiveStep& operator=(const ActiveStep&) = delete;

 private:
  RankActivity& activity_;
};

// `communicator`, on the CPU, each of whose calls is a wait of the rank.
std::unique_ptr<Communicator> watch_communicator(std::unique_ptr<Communicator> communicator,
                                                 RankActivity& activity);

}  // namespace quire
