#pragma once
// The terminal while a program edits lines on it: what is typed waits, unechoed and as it was
// typed, until it is read.
//
// A terminal in its usual mode makes lines of what is typed while the program is busy, and a Ctrl-D
// typed then is no Ctrl-D any more once the mode changes. So one mode holds from the first prompt
// to the end, and the shell gets its own back whenever it has the terminal: when the program ends,
// is killed by SIGTERM, SIGHUP or SIGQUIT, or is stopped (Ctrl-Z).
//
// While it lives, these signals, SIGTSTP, SIGCONT and SIGWINCH are blocked in the thread that made
// it and in those started since: make it before the engine. Thread safety: restore() from any
// thread, the rest from one at a time.
#include <termios.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace quire::cli {

class TerminalModes {
 public:
  // Of standard input, which must be a terminal.
  TerminalModes();
  ~TerminalModes();
  TerminalModes(const TerminalModes&) = delete;
  TerminalModes& operator=(const TerminalModes&) = delete;

  struct Changes {
    bool resized = false;
    bool continued = false;  // after a stop: others have written to the terminal
  };
  // Readable while there are changes; take() takes all of them.
  int fd() const { return changes_fd_; }
  Changes take();

  // Gives the terminal the modes that it had at first.
  void restore() const;

 private:
  void enter() const;
  void serve();
  void report(std::atomic<bool>& change);

  termios original_{};  // the shell's
  sigset_t signals_{};
  sigset_t previous_mask_{};
  std::atomic<bool> resized_ = false;
  std::atomic<bool> continued_ = false;
  int changes_fd_;
  int stop_fd_;
  int signal_fd_;
  std::thread thread_;
};

}  // namespace quire::cli
