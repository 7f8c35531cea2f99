#include "cli/terminal/interrupts.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "cli/usage_error.h"

namespace quire::cli {
namespace {

int opened(int fd, const char* what) {
  if (fd < 0) throw Error(std::string("cannot make a ") + what + ": " + std::strerror(errno));
  return fd;
}

sigset_t interrupt_set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

Interrupts::Interrupts() {
  const sigset_t set = interrupt_set();
  signal_fd_ = opened(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), "signalfd");
  pthread_sigmask(SIG_BLOCK, &set, &previous_mask_);
}

Interrupts::~Interrupts() {
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
  close(signal_fd_);
}

bool Interrupts::take() const {
  bool taken = false;
  signalfd_siginfo info{};
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) taken = true;
  return taken;
}

InterruptHandler::InterruptHandler(const Interrupts& interrupts, std::function<void()> on_interrupt)
    : stop_fd_(opened(eventfd(0, EFD_CLOEXEC), "eventfd")),
      thread_([&interrupts, on_interrupt = std::move(on_interrupt), stop_fd = stop_fd_] {
        std::array<pollfd, 2> fds = {pollfd{.fd = stop_fd, .events = POLLIN, .revents = 0},
                                     pollfd{.fd = interrupts.fd(), .events = POLLIN, .revents = 0}};
        while (true) {
          if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
          if ((fds[0].revents & POLLIN) != 0) return;
          if ((fds[1].revents & POLLIN) != 0 && interrupts.take()) on_interrupt();
        }
      }) {}

InterruptHandler::~InterruptHandler() {
  eventfd_write(stop_fd_, 1);
  thread_.join();
  close(stop_fd_);
}

void exit_interrupted() {
  _exit(kExitInterrupted);
}

}  // namespace quire::cli
