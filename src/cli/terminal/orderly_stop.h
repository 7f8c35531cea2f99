#pragma once
// Ctrl-C, SIGTERM and SIGHUP for a command that tidies up before it ends: the first signal asks it
// to stop, the next one ends the process at once.
//
// Make it before any other thread, which would otherwise take the signals. Thread safety: all
// except the constructor may be called from any thread.
#include <atomic>
#include <stop_token>

#include "cli/terminal/stop_signals.h"

namespace quire::cli {

class OrderlyStop {
 public:
  // From when on there is something to tidy up. Before that even the first signal ends the process.
  enum class Starts { kNow, kWithBegin };
  explicit OrderlyStop(Starts starts = Starts::kNow);

  void begin() { has_begun_ = true; }
  bool is_asked() const { return stop_.stop_requested(); }
  std::stop_token token() const { return stop_.get_token(); }
  // For a command that was asked to stop: 128 + the signal, as shells report it.
  int exit_code() const;

 private:
  void take(int signal);

  std::atomic<bool> has_begun_;
  std::atomic<int> signal_{0};
  std::stop_source stop_;
  StopSignals signals_;
};

}  // namespace quire::cli
