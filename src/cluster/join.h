#pragma once
// How the nodes of a group find each other: node 0 listens at an address, the others connect to it.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/connection.h"
#include "cluster/hello.h"

namespace quire::cluster {

struct JoinOptions {
  int num_nodes = 1;
  int node = 0;
  std::string address;  // of node 0
  uint16_t port = 0;
  double timeout_s = 0;
  // By which other nodes wait longer once node 0 has answered, whose own sentence says more.
  double grace_s = 5;
  std::string secret;
  Facts facts;
  std::vector<int> node_of_rank;  // which node each rank of the model is on
  // Called with lines for the user, from any thread; may be empty.
  std::function<void(const std::string&)> log;
};

// Node 0's side. Admits nodes that prove that they belong to the group, tells others why they are
// refused, and tells those that come when the group is complete that they are late. What strangers
// send is bounded in length, time and number, and changes nothing.
class Door {
 public:
  // Listens. Throws Error.
  explicit Door(JoinOptions options);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  uint16_t port() const;
  // Waits until all nodes are there. Element n is the connection to node n; element 0 is null.
  // Throws Error where nodes are late, or one does not fit; the other nodes are told, too.
  std::vector<std::unique_ptr<Connection>> wait();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Another node's side: its connection to node 0, once all nodes are there. Throws Error.
std::unique_ptr<Connection> join_at_door(const JoinOptions& options);

}  // namespace quire::cluster
