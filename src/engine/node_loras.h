#pragma once
// The adapters of a node that is not node 0: it loads them when node 0 says so, on a thread of its
// own, so that steps go on meanwhile.
//
// Thread safety: hold() and forget() from one thread, that which takes the batches.
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>

#include "cluster/node_group.h"
#include "engine/lora_reader.h"
#include "loader/lora_weights.h"

namespace quire {

class NodeLoras {
 public:
  // `target` is the model that they are for.
  NodeLoras(std::shared_ptr<cluster::NodeGroup> nodes, LoraTarget target);
  ~NodeLoras();
  NodeLoras(const NodeLoras&) = delete;
  NodeLoras& operator=(const NodeLoras&) = delete;

  // The weights of an adapter that node 0 had loaded. Throws Error where it had not.
  std::shared_ptr<const LoraWeights> hold(uint64_t id) const;
  // Unknown ids: no effect. Requests that hold the weights keep them.
  void forget(std::span<const uint64_t> ids);

 private:
  void carry_out_orders();
  // Throws Error.
  void load(std::span<const std::byte> order);

  std::shared_ptr<cluster::NodeGroup> nodes_;
  LoraTarget target_;
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const LoraWeights>> weights_;  // by id
  std::thread thread_;
};

}  // namespace quire
