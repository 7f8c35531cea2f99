#pragma once
// How an engine's nodes come together: what must be the same on all of them, and what they share.
//
// Thread safety: free functions of their arguments and the files.
#include <filesystem>
#include <memory>

#include "base/cpu_features.h"
#include "cluster/node_group.h"
#include "engine/device_choice.h"
#include "quire/engine_config.h"

namespace quire {

// Throws Error naming the setting that is wrong.
void check_cluster(const EngineConfig& config);

// Waits for all nodes. All defaults of `config` that do not depend on the machine are filled in;
// `model` is the model's folder or GGUF file; `isa` is what this node's kernels use on the CPU,
// which decides the bits of their sums; `choice` is this node's device. Throws Error.
std::shared_ptr<cluster::NodeGroup> join_nodes(const EngineConfig& config,
                                               const std::filesystem::path& model, Isa isa,
                                               const DeviceChoice& choice);

}  // namespace quire
