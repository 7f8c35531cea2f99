#pragma once
// SIGINT and SIGTERM as calls, for commands that end in an orderly way; SIGHUP as another call, for
// commands that read their files again or tidy up.
//
// While a StopSignals lives, the signals are blocked in its thread and in threads started since:
// make it before any other thread. Thread safety: the callbacks run on a thread of their own, one
// at a time.
#include <csignal>
#include <functional>
#include <thread>

namespace quire::cli {

class StopSignals {
 public:
  // `on_stop(number, count)`: the signal, and how many have come, this one included. Without
  // `on_reload`, SIGHUP has its default effect.
  explicit StopSignals(std::function<void(int number, int count)> on_stop,
                       std::function<void()> on_reload = nullptr);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void run() const;

  std::function<void(int, int)> on_stop_;
  std::function<void()> on_reload_;
  sigset_t previous_mask_{};
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace quire::cli
