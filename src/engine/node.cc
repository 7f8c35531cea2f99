#include "quire/node.h"

#include <fmt/format.h>

#include <memory>
#include <span>
#include <utility>

#include "engine/engine_setup.h"
#include "engine/node_loras.h"
#include "request/batch_encoding.h"
#include "request/lora_order.h"

namespace quire {
namespace {

EngineSetup set_up_other_node(const EngineConfig& config) {
  if (config.cluster.node_rank < 1) {
    throw Error("--node-rank is 0, which has the engine; expected 1 or more for another node.");
  }
  return set_up_node(config);
}

std::unique_ptr<NodeLoras> make_loras(const EngineSetup& setup) {
  if (!setup.config.lora.enabled) return nullptr;
  return std::make_unique<NodeLoras>(setup.executor.nodes, lora_target(setup));
}

}  // namespace

class Node::Impl {
 public:
  explicit Impl(const EngineConfig& config)
      : setup_(set_up_other_node(config)),
        nodes_(setup_.executor.nodes),
        loras_(make_loras(setup_)),
        executor_(start_executor(setup_, nullptr, nullptr, nullptr)) {}

  void run() {
    while (const auto bytes = nodes_->next_batch()) {
      try {
        take(*bytes);
      } catch (const Error& error) {
        stop(error.what());
      }
    }
    executor_.reset();
  }

  void leave(const std::string& reason) { nodes_->leave(sentence_for(reason)); }
  void stop(const std::string& reason) { nodes_->fail(sentence_for(reason)); }

 private:
  void take(std::span<const std::byte> bytes) {
    if (loras_ && are_forgotten_loras(bytes)) {
      loras_->forget(decode_forgotten_loras(bytes));
      return;
    }
    LoraById find_lora;
    if (loras_) find_lora = [this](uint64_t id) { return loras_->hold(id); };
    executor_->submit(std::make_shared<const ScheduledBatch>(decode_batch(bytes, find_lora)));
  }

  std::string sentence_for(const std::string& reason) const {
    return fmt::format("Node {} ends the group: {}", nodes_->node(), reason);
  }

  EngineSetup setup_;
  std::shared_ptr<cluster::NodeGroup> nodes_;
  std::unique_ptr<NodeLoras> loras_;  // null: none are served
  std::unique_ptr<Executor> executor_;
};

Node::Node(const EngineConfig& config) : impl_(std::make_unique<Impl>(config)) {}
Node::~Node() = default;
Node::Node(Node&&) noexcept = default;
Node& Node::operator=(Node&&) noexcept = default;

void Node::run() {
  impl_->run();
}

void Node::leave(const std::string& reason) {
  impl_->leave(reason);
}

void Node::stop(const std::string& reason) {
  impl_->stop(reason);
}

}  // namespace quire
