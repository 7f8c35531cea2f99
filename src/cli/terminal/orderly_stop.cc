#include "cli/terminal/orderly_stop.h"

#include <unistd.h>

#include <csignal>

namespace quire::cli {
namespace {

int code_of(int signal) {
  return 128 + signal;
}

}  // namespace

OrderlyStop::OrderlyStop(Starts starts)
    : has_begun_(starts == Starts::kNow),
      signals_([this](int signal, int) { take(signal); }, [this] { take(SIGHUP); }) {}

int OrderlyStop::exit_code() const {
  return code_of(signal_);
}

void OrderlyStop::take(int signal) {
  int none = 0;
  const bool is_first = signal_.compare_exchange_strong(none, signal);
  if (!is_first || !has_begun_) _exit(code_of(signal));
  stop_.request_stop();
}

}  // namespace quire::cli
