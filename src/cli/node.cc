#include "cli/node.h"

#include <fmt/format.h>
#include <unistd.h>

#include <mutex>
#include <ostream>

#include "cli/terminal/stop_signals.h"
#include "quire/node.h"

namespace quire::cli {

int run_node(const EngineConfig& config, Terminal& terminal) {
  std::mutex mutex;
  Node* running = nullptr;
  const StopSignals signals([&](int number, int count) {
    const std::lock_guard lock(mutex);
    if (running == nullptr || count > 1) _exit(128 + number);
    running->stop(fmt::format("it was told to stop (signal {}).", number));
  });
  Node node(config);
  const auto set_running = [&](Node* value) {
    const std::lock_guard lock(mutex);
    running = value;
  };
  terminal.err << fmt::format("quire: node {} runs its part of {}\n", config.cluster.node_rank,
                              config.model)
               << std::flush;
  set_running(&node);
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
