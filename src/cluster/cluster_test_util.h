#pragma once
// Groups of nodes that are threads of one process, for tests.
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/node_group.h"

namespace quire::cluster {

// Joins `num_nodes` nodes over this machine's loopback and calls body(group) on one thread for
// each. `change` may change a node's options first. Returns what each node threw, or an empty text.
inline std::vector<std::string> run_nodes(
    int num_nodes, const std::function<void(const std::shared_ptr<NodeGroup>&)>& body,
    const std::function<void(JoinOptions&)>& change = [](JoinOptions&) {}) {
  std::mutex mutex;
  std::condition_variable changed;
  uint16_t port = 0;
  bool ended = false;
  std::vector<std::string> errors(static_cast<size_t>(num_nodes));
  const auto run = [&](int node) {
    JoinOptions options{.num_nodes = num_nodes,
                        .node = node,
                        .address = "127.0.0.1",
                        .port = 0,
                        .timeout_s = 60,
                        .secret = "a secret of tests",
                        .facts = {{"the model", "lexicon"}, {"--max-num-seqs", "4"}},
                        .node_of_rank = {},
                        .log = {}};
    for (int rank = 0; rank < num_nodes; ++rank) options.node_of_rank.push_back(rank);
    change(options);
    if (node > 0) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return port != 0 || ended; });
      options.port = port;
    }
    try {
      const auto group = NodeGroup::join(options, [&](uint16_t bound) {
        {
          const std::lock_guard lock(mutex);
          port = bound;
        }
        changed.notify_all();
      });
      body(group);
      if (node == 0) group->end();
      while (node != 0 && group->next_batch()) {
      }
    } catch (const std::exception& error) {
      errors[static_cast<size_t>(node)] = error.what();
    }
    {
      const std::lock_guard lock(mutex);
      ended = ended || node == 0;
    }
    changed.notify_all();
  };
  std::vector<std::thread> threads;
  for (int node = 0; node < num_nodes; ++node) threads.emplace_back(run, node);
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace quire::cluster
