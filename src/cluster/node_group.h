#pragma once
// The nodes of a running group: what they send each other, and how the group ends.
//
// Every other node is connected only to node 0, which passes on what two others send each other.
// Messages from one rank to another arrive in the order in which they were sent. Each connection
// has a thread that reads and never waits for a rank, so no two nodes can wait for each other's
// buffers. Nodes ping each other. A node that is silent for kSilence, hangs up or fails ends the
// group: then every call throws Error with one sentence, the same on all nodes that can still be
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

// The way from one rank to another within a group of ranks.
struct Route {
  uint8_t group = 0;
  int from = 0;  // ranks of the whole model
  int to = 0;
};

inline constexpr size_t kMaxReport = 4096;

class NodeGroup {
 public:
  // Waits until all nodes are there. Throws Error. `on_port` is called on node 0 with the port on
  // which it listens.
  static std::shared_ptr<NodeGroup> join(const JoinOptions& options,
                                         const std::function<void(uint16_t)>& on_port = {});
  // On node 0, if the group ended in order, waits until the other nodes have done their last step.
  ~NodeGroup();
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  int node() const;
  int num_nodes() const;
  // JoinOptions': for all that brings the nodes together.
  double timeout_s() const;

  // The least of the numbers that the nodes give. Every node must call it equally often.
  int64_t agree_least(int64_t mine);

  // As JoinOptions::node_of_rank says.
  int node_of_rank(int rank) const;
  void send(const Route& route, std::span<const std::byte> bytes);
  // Receives a message of exactly bytes.size() bytes.
  void receive(const Route& route, std::span<std::byte> bytes);

  // Node 0: hands a step to the others. A failure is not thrown here.
  void send_batch(std::span<const std::byte> batch);
  // Other nodes: the next step; nothing when the group has ended in order.
  std::optional<std::vector<std::byte>> next_batch();

  // Node 0: gives the other nodes an order, at most kMaxPayload bytes, and waits until each has
  // answered. Returns the first answer that says why a node could not do it; empty if all did.
  // Orders are carried out one at a time, beside the steps.
  std::string give_order(std::span<const std::byte> order);
  // Other nodes: the next order, which answer_order() has to follow; nothing when the group has
  // ended or stop_orders() was called.
  std::optional<std::vector<std::byte>> next_order();
  void answer_order(const std::string& problem);
  void stop_orders();

  // Node 0: the group ends in order, after the steps that were sent. Again: does nothing.
  void end();
  // Other nodes: asks node 0 to end the group when it has finished what it runs, with a sentence
  // that says why. Returns at once; a second is the most that it takes.
  void leave(const std::string& sentence);
  // Node 0: sets the function that is called with the sentence of a node that asks so, on a thread
  // that must not wait for ranks. Without one, the group fails with that sentence.
  void on_leave(std::function<void(const std::string&)> callback);
  // Ends the group with a sentence, unless it has ended.
  void fail(const std::string& sentence);
  // Sets the function that is called once when the group fails, from a thread of its own or that of
  // the call that failed; at once if the group has failed already. An empty function removes the
  // one that was set; when this returns it does not run any more.
  void on_failure(std::function<void()> callback);
  // Why the group has failed; nothing if it has not.
  std::optional<std::string> failure() const;

  // Other nodes: sets the function that makes what node 0 is told in the place of a ping, at most
  // kMaxReport bytes, on a thread of the group that must not wait. An empty function removes the
  // one that was set; when this returns it does not run any more.
  void on_report(std::function<std::vector<std::byte>()> callback);
  // Node 0: what another node has told last; empty if it has told nothing.
  std::vector<std::byte> report_of(int other) const;

  uint64_t bytes_sent() const;  // by this node

 private:
  class Impl;
  explicit NodeGroup(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::cluster
