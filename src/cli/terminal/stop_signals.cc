#include "cli/terminal/stop_signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "quire/error.h"

namespace quire::cli {

StopSignals::StopSignals(std::function<void(int number, int count)> on_stop,
                         std::function<void()> on_reload)
    : on_stop_(std::move(on_stop)), on_reload_(std::move(on_reload)) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  if (on_reload_) sigaddset(&set, SIGHUP);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || stop_fd_ < 0) {
    throw Error(std::string("Signals cannot be watched: ") + std::strerror(errno) + ".");
  }
  pthread_sigmask(SIG_BLOCK, &set, &previous_mask_);
  thread_ = std::thread([this] { run(); });
}

StopSignals::~StopSignals() {
  eventfd_write(stop_fd_, 1);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
  close(signal_fd_);
  close(stop_fd_);
}

void StopSignals::run() const {
  int count = 0;
  while (true) {
    std::array<pollfd, 2> fds = {pollfd{.fd = stop_fd_, .events = POLLIN, .revents = 0},
                                 pollfd{.fd = signal_fd_, .events = POLLIN, .revents = 0}};
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    if ((fds[0].revents & POLLIN) != 0) return;
    signalfd_siginfo info{};
    if ((fds[1].revents & POLLIN) == 0 || read(signal_fd_, &info, sizeof(info)) != sizeof(info)) {
      continue;
    }
    if (info.ssi_signo == SIGHUP) {
      on_reload_();
    } else {
      on_stop_(static_cast<int>(info.ssi_signo), ++count);
    }
  }
}

}  // namespace quire::cli
