#pragma once
// SIGINT and SIGTERM as calls, for commands that end in an orderly way.
//
// While a StopSignals lives, both are blocked in the thread that made it and in those started
// since: make it before any other thread. Thread safety: the callback runs on a thread of its own.
#include <csignal>
#include <functional>
#include <thread>

namespace quire::cli {

class StopSignals {
 public:
  // `on_signal(number, count)`: the signal, and how many have come with it.
  explicit StopSignals(std::function<void(int number, int count)> on_signal);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void run(const std::function<void(int, int)>& on_signal) const;

  sigset_t previous_mask_{};
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace quire::cli
