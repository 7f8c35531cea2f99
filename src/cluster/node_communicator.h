#pragma once
// Ranks of one group that are on several nodes (cluster/node_group.h): on the CPU, and how those on
// GPUs find each other.
//
// Sums are taken in rank order, so they have the bits that ranks in one process give. Thread
// safety: as for every Communicator.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cluster/node_group.h"
#include "dist/communicator.h"

namespace quire {

// The communicator of ranks[rank], which runs on this node; `ranks` are numbered over the whole
// model. `group` tells apart the messages of groups that share ranks.
std::unique_ptr<Communicator> make_node_communicator(std::shared_ptr<cluster::NodeGroup> nodes,
                                                     uint8_t group, std::vector<int> ranks,
                                                     int rank);

// What the node of ranks[0] makes with make(), on every node that has some of the ranks: how their
// GPUs find each other, at most kMaxGroupIdBytes (core/device_library.h). Each of these nodes calls
// it once. Throws Error also where another node has failed to make it.
std::vector<std::byte> share_group_id(cluster::NodeGroup& nodes, uint8_t group,
                                      const std::vector<int>& ranks,
                                      const std::function<std::vector<std::byte>()>& make);

// What all `ranks` say, in their order, as many bytes each. `mine` is what those on this node say,
// of which there are some. Each node that has some of the ranks calls it equally often, and not
// beside another call for one of these ranks and `group`. Throws Error when the nodes have failed.
std::vector<std::byte> exchange_among_ranks(cluster::NodeGroup& nodes, uint8_t group,
                                            const std::vector<int>& ranks,
                                            std::span<const std::byte> mine);

}  // namespace quire
