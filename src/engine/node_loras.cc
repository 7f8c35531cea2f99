#include "engine/node_loras.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "quire/error.h"
#include "request/lora_order.h"

namespace quire {

NodeLoras::NodeLoras(std::shared_ptr<cluster::NodeGroup> nodes, LoraTarget target)
    : nodes_(std::move(nodes)),
      target_(std::move(target)),
      thread_([this] { carry_out_orders(); }) {}

NodeLoras::~NodeLoras() {
  nodes_->stop_orders();
  thread_.join();
}

std::shared_ptr<const LoraWeights> NodeLoras::hold(uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = weights_.find(id);
  if (found != weights_.end()) return found->second;
  throw Error(fmt::format("a step has adapter {}, which was not loaded here.", id));
}

void NodeLoras::forget(std::span<const uint64_t> ids) {
  const std::lock_guard lock(mutex_);
  for (const uint64_t id : ids) weights_.erase(id);
}

void NodeLoras::carry_out_orders() {
  while (const auto order = nodes_->next_order()) {
    std::string problem;
    try {
      load(*order);
    } catch (const std::exception& error) {
      problem = fmt::format("Node {}: {}", nodes_->node(), error.what());
    }
    nodes_->answer_order(problem);
  }
}

void NodeLoras::load(std::span<const std::byte> bytes) {
  const LoraOrder order = decode_lora_order(bytes);
  LoraWeights read = read_lora(order.path, target_);
  if (read.content_hash != order.content_hash) {
    throw Error(
        fmt::format("{} differs from the adapter of node 0; expected the same files on "
                    "every node.",
                    order.path));
  }
  read.id = order.id;
  auto weights = std::make_shared<const LoraWeights>(std::move(read));
  const std::lock_guard lock(mutex_);
  weights_[order.id] = std::move(weights);
}

}  // namespace quire
