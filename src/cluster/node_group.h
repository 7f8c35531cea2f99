#pragma once
// The nodes of a group while it lives: what they send each other, and how it ends.
//
// Every other node is connected to node 0, which passes on what two others send each other.
// Messages from one rank to another arrive in the order in which they were sent. Each connection
// has a thread that reads and never waits for a rank, so that no two nodes can wait for each
// other's buffers. Nodes ping each other; one that says nothing for kSilence, hangs up or fails
// ends the group: then every call throws Error with one sentence, the same on all nodes that can be
// told. Thread safety: any thread.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/join.h"

namespace quire::cluster {

// From one rank to another within a group of ranks.
struct Route {
  uint8_t group = 0;
  int from = 0;  // ranks of the whole model
  int to = 0;
};

class NodeGroup {
 public:
  // Waits until all nodes are there. Throws Error. `on_port` is called on node 0 with the port on
  // which it listens.
  static std::shared_ptr<NodeGroup> join(const JoinOptions& options,
                                         const std::function<void(uint16_t)>& on_port = {});
  // On node 0 of a group that ended in order, waits until the others have done their last step.
  ~NodeGroup();
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  int node() const;
  int num_nodes() const;

  // The least of what the nodes give; each calls it as often as the others.
  int64_t agree_least(int64_t mine);

  // Of JoinOptions::node_of_rank.
  int node_of_rank(int rank) const;
  void send(const Route& route, std::span<const std::byte> bytes);
  // A message of as many bytes.
  void receive(const Route& route, std::span<std::byte> bytes);

  // Node 0: hands a step to the others. A failure is not thrown here.
  void send_batch(std::span<const std::byte> batch);
  // Other nodes: the next step; nothing when the group has ended in order.
  std::optional<std::vector<std::byte>> next_batch();

  // Node 0: the group ends in order, after the steps that were sent.
  void end();
  // Ends the group with a sentence, unless it has ended.
  void fail(const std::string& sentence);
  // Called once when the group fails, from a thread of its own or that of the call that failed; at
  // once if it has failed. An empty function takes the one before away: it is not running then.
  void on_failure(std::function<void()> callback);
  // Why the group has failed; nothing if it has not.
  std::optional<std::string> failure() const;

  uint64_t bytes_sent() const;  // by this node

 private:
  class Impl;
  explicit NodeGroup(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::cluster
