#pragma once
// How nodes that run on one machine divide it.
//
// Thread safety: free functions; one thread of each node at a time.
#include <array>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "cluster/node_group.h"

namespace quire::cluster {

struct MachineShare {
  int num_nodes = 1;         // on this machine, this one included
  int place = 0;             // of this one among them, by their numbers
  int num_cores = 1;         // physical cores for this node; 0 where nodes outnumber them
  bool shares_cpus = false;  // another node may run on some of this node's CPUs
};

// The machine's boot id as a number; containers on one machine have the same.
int64_t machine_number();

// Every node must call it, with the number of its machine and the CPUs that it may run on: a
// launcher may have bound each node to cores of its own. The node then uses all of them.
MachineShare share_machine(NodeGroup& nodes, int64_t machine, const CpuTopology& cpus);

// A GPU's number that no other has (DeviceInfo).
using GpuId = std::array<uint8_t, 16>;

// Every node must call it, with the GPUs of its ranks, as many on each node. Throws Error, the same
// on every node, where two ranks take one GPU.
void check_gpus_are_apart(NodeGroup& nodes, std::span<const GpuId> gpus);

}  // namespace quire::cluster
