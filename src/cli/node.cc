#include "cli/node.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <thread>

#include "cli/terminal/stop_signals.h"
#include "quire/node.h"

namespace quire::cli {
namespace {

// For node 0 to cut what has not finished, and to end.
constexpr double kEndWaitS = 15;

// Ends a group that node 0 was asked to end and did not.
class EndLimit {
 public:
  EndLimit(Node& node, double seconds)
      : node_(node), seconds_(seconds), thread_([this] { run(); }) {}
  ~EndLimit() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  EndLimit(const EndLimit&) = delete;
  EndLimit& operator=(const EndLimit&) = delete;

  // The time runs from now on.
  void begin(const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      reason_ = reason;
    }
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_ || reason_; });
    // A year is for ever, and no overflow.
    const std::chrono::duration<double> limit(std::min(seconds_, 3.2e7));
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::milliseconds>(limit);
    if (changed_.wait_until(lock, until, [this] { return over_; })) return;
    const std::string sentence =
        fmt::format("{}, and node 0 did not end the group within {:g} s.", *reason_, seconds_);
    lock.unlock();
    node_.stop(sentence);
  }

  Node& node_;
  const double seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::optional<std::string> reason_;
  std::thread thread_;
};

}  // namespace

int run_node(const EngineConfig& config, double shutdown_timeout_s, Terminal& terminal) {
  std::mutex mutex;
  Node* running = nullptr;
  EndLimit* limit = nullptr;
  bool has_run = false;
  const StopSignals signals([&](int number, int count) {
    const std::lock_guard lock(mutex);
    if (has_run && count == 1) return;  // it ends as it is
    if (running == nullptr || count > 1) _exit(128 + number);
    terminal.err << fmt::format(
                        "quire: node {} was told to stop (signal {}), and asks node 0 to end the "
                        "group; a second signal ends it at once\n",
                        config.cluster.node_rank, number)
                 << std::flush;
    const std::string reason = fmt::format("it was told to stop (signal {})", number);
    running->leave(reason + ".");
    limit->begin(reason);
  });
  Node node(config);
  EndLimit end_limit(node, shutdown_timeout_s + kEndWaitS);
  const auto set_running = [&](Node* value) {
    const std::lock_guard lock(mutex);
    running = value;
    limit = &end_limit;
    has_run = value == nullptr;
  };
  // Who reads the line may send a signal at once.
  set_running(&node);
  terminal.err << fmt::format("quire: node {} runs its part of {}\n", config.cluster.node_rank,
                              config.model)
               << std::flush;
  try {
    node.run();
  } catch (...) {
    set_running(nullptr);
    throw;
  }
  set_running(nullptr);
  terminal.err << "quire: node 0 has ended the group\n" << std::flush;
  return 0;
}

}  // namespace quire::cli
