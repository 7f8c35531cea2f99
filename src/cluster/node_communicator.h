#pragma once
// Ranks of one group that are on several nodes (cluster/node_group.h), on the CPU.
//
// Sums are taken in rank order, so that their bits are those of ranks that are threads of one
// process. Thread safety: as for every Communicator.
#include <cstdint>
#include <memory>
#include <vector>

#include "cluster/node_group.h"
#include "dist/communicator.h"

namespace quire {

// That of the `rank`th of `ranks`, which are counted over the whole model; it runs on this node.
// `group` tells the messages of groups apart that have ranks in common.
std::unique_ptr<Communicator> make_node_communicator(std::shared_ptr<cluster::NodeGroup> nodes,
                                                     uint8_t group, std::vector<int> ranks,
                                                     int rank);

}  // namespace quire
