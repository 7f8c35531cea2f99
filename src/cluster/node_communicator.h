#pragma once
// Ranks of one group that are on several nodes (cluster/node_group.h), on the CPU.
//
// Sums are taken in rank order, so they have the bits that ranks in one process give. Thread
// safety: as for every Communicator.
#include <cstdint>
#include <memory>
#include <vector>

#include "cluster/node_group.h"
#include "dist/communicator.h"

namespace quire {

// The communicator of ranks[rank], which runs on this node; `ranks` are numbered over the whole
// model. `group` tells apart the messages of groups that share ranks.
std::unique_ptr<Communicator> make_node_communicator(std::shared_ptr<cluster::NodeGroup> nodes,
                                                     uint8_t group, std::vector<int> ranks,
                                                     int rank);

}  // namespace quire
