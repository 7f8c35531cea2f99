#pragma once
// Threads of the server that write to pipes and sockets.
#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace quire::server {

// A thread that receives no signals: handlers run elsewhere, and a closed pipe is an error of
// write() instead of the end of the process.
template <typename Function>
std::thread signal_free_thread(Function function) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(function));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace quire::server
