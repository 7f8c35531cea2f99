#pragma once
// How an engine's nodes come together: what must be the same on all of them, and what they share.
//
// Thread safety: free functions of their arguments and the files.
#include <cstdint>
#include <filesystem>
#include <memory>

#include "cluster/node_group.h"
#include "quire/engine_config.h"

namespace quire {

// Throws Error naming the setting that is wrong.
void check_cluster(const EngineConfig& config, bool on_gpu);

// Waits for all nodes. All defaults of `config` that do not depend on the machine are filled in;
// `model` is the model's folder or GGUF file. Throws Error.
std::shared_ptr<cluster::NodeGroup> join_nodes(const EngineConfig& config,
                                               const std::filesystem::path& model);

// How many nodes run on this machine, this one included.
int num_nodes_here(cluster::NodeGroup& nodes);

}  // namespace quire
