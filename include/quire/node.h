#pragma once
// A process with ranks of an engine that runs in another process (ClusterOptions).
//
//   quire::Node node(config);  // config.cluster.node_rank is 1 or more, all else as on node 0
//   node.run();                // until node 0 ends the group
//
// Thread safety: leave() and stop() from any thread, the rest from one thread at a time.
#include <memory>
#include <string>

#include "quire/engine_config.h"
#include "quire/error.h"

namespace quire {

class Node {
 public:
  // Waits until all nodes have joined, and loads this node's part of the model. Throws the Errors
  // of an engine, and one for nodes that are missing, late, or differ in settings that must be
  // equal.
  explicit Node(const EngineConfig& config);
  ~Node();
  Node(Node&&) noexcept;
  Node& operator=(Node&&) noexcept;

  // Runs the steps that node 0 schedules. Returns when node 0 has ended the group in order; throws
  // Error when the group failed.
  void run();

  // Asks node 0 to end the group, for this reason, when running requests have finished. Returns
  // soon.
  void leave(const std::string& reason);
  // Ends the whole group at once, for this reason.
  void stop(const std::string& reason);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
