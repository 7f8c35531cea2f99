#pragma once
// Ctrl-C as an event that a command handles when it can, instead of a signal that ends it anywhere.
//
// While an Interrupts lives, SIGINT is blocked in its thread and in threads started since, and
// waits in a file descriptor. Make it before the engine, whose threads would otherwise take the
// signal. Thread safety: one thread at a time; the callback of a Handler runs on a thread of the
// handler's own.
#include <csignal>
#include <functional>
#include <thread>

namespace quire::cli {

class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Readable while an interrupt waits. take() takes all that wait, and returns whether there were
  // any.
  int fd() const { return signal_fd_; }
  bool take() const;

 private:
  sigset_t previous_mask_{};
  int signal_fd_;
};

// Calls `on_interrupt` for each interrupt until it is destroyed.
class InterruptHandler {
 public:
  InterruptHandler(const Interrupts& interrupts, std::function<void()> on_interrupt);
  ~InterruptHandler();
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;

 private:
  int stop_fd_;
  std::thread thread_;
};

// Ends the process at once, as an unhandled interrupt does.
[[noreturn]] void exit_interrupted();

}  // namespace quire::cli
