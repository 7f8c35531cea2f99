#include "cli/terminal/terminal_modes.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "quire/error.h"

namespace quire::cli {
namespace {

int opened_for_modes(int fd, const char* what) {
  if (fd < 0) throw Error(std::string("cannot make a ") + what + ": " + std::strerror(errno));
  return fd;
}

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

// Lets a signal that is blocked in this thread act on the process, as if it had no handler.
void let_act(int signal) {
  const sigset_t set = set_of({signal});
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void take_pending(int signal) {
  const sigset_t set = set_of({signal});
  const timespec at_once{};
  sigtimedwait(&set, nullptr, &at_once);
}

}  // namespace

TerminalModes::TerminalModes()
    : signals_(set_of({SIGTSTP, SIGCONT, SIGWINCH, SIGTERM, SIGHUP, SIGQUIT})),
      changes_fd_(opened_for_modes(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      stop_fd_(opened_for_modes(eventfd(0, EFD_CLOEXEC), "eventfd")),
      signal_fd_(
          opened_for_modes(signalfd(-1, &signals_, SFD_NONBLOCK | SFD_CLOEXEC), "signalfd")) {
  if (tcgetattr(STDIN_FILENO, &original_) != 0) {
    throw Error(std::string("cannot read the terminal's modes: ") + std::strerror(errno));
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &previous_mask_);
  thread_ = std::thread([this] { serve(); });
  enter();
}

TerminalModes::~TerminalModes() {
  restore();
  eventfd_write(stop_fd_, 1);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
  close(signal_fd_);
  close(stop_fd_);
  close(changes_fd_);
}

void TerminalModes::restore() const {
  tcsetattr(STDIN_FILENO, TCSADRAIN, &original_);
}

void TerminalModes::enter() const {
  termios modes = original_;
  modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
  modes.c_cc[VMIN] = 1;
  modes.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &modes);
}

TerminalModes::Changes TerminalModes::take() {
  eventfd_t count = 0;
  eventfd_read(changes_fd_, &count);
  return {.resized = resized_.exchange(false), .continued = continued_.exchange(false)};
}

void TerminalModes::report(std::atomic<bool>& change) {
  change = true;
  eventfd_write(changes_fd_, 1);
}

void TerminalModes::serve() {
  std::array<pollfd, 2> fds = {pollfd{.fd = stop_fd_, .events = POLLIN, .revents = 0},
                               pollfd{.fd = signal_fd_, .events = POLLIN, .revents = 0}};
  while (true) {
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    if ((fds[0].revents & POLLIN) != 0) return;
    signalfd_siginfo info{};
    if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGWINCH) {
      report(resized_);
      continue;
    }
    if (signal != SIGCONT) {
      restore();
      let_act(signal);
      // The process lives: it was stopped and goes on, or its parent had it ignore the signal.
      take_pending(SIGCONT);
    }
    enter();
    report(continued_);
  }
}

}  // namespace quire::cli
