#pragma once
// Which CPUs the ranks of an engine run on, and where their memory lies on a machine with several
// NUMA nodes, each with memory of its own.
//
// A rank whose threads are all on one node has its memory there. The memory of one that runs on
// several lies on them in turn, page by page, because its tasks go to whichever thread is free: so
// the memory of all of them is read at once. Nothing changes on a machine with one node.
// Thread safety: free functions; plain values.
#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace quire {

struct NumaTopology {
  CpuTopology cpus;
  std::vector<int> nodes;  // the NUMA node of each of cpus.cpus, as the system numbers them
};
// The CPUs are those that the calling thread may use. Asking takes milliseconds.
NumaTopology numa_topology();
// That of a machine in hwloc's synthetic notation, for tests: "numanode:2 core:4 pu:2".
NumaTopology read_numa_topology(const std::string& synthetic);

struct CpuPlacement {
  std::vector<int> cpus;   // one for each of the rank's threads; empty: they are not pinned
  std::vector<int> nodes;  // the NUMA nodes of these CPUs, ascending
  // All CPUs of these nodes that the process may use; empty on a machine with one node.
  std::vector<int> node_cpus;
};

// The CPUs of each rank, physical cores first. On a machine with several NUMA nodes, several ranks
// are spread evenly over the nodes where these have cores enough; else the ranks follow each other
// in the topology's order. Empty placements where the ranks want more threads than there are CPUs.
std::vector<CpuPlacement> place_ranks(const NumaTopology& topology, int threads_per_rank,
                                      int num_ranks);

// Keeps the calling thread, and threads that it starts later, on the CPUs of the placement's nodes,
// and has memory that they touch first come from these nodes. Does nothing on a machine with one
// node, nor where the system refuses: placement is only a matter of speed.
void run_at(const CpuPlacement& placement);

// Memory that the calling thread, and threads that it starts later, touch first comes from these
// nodes: of one, or of several in turn. False where the system refuses, or the user has chosen a
// memory policy already (numactl): that stays.
bool take_memory_from(const std::vector<int>& nodes);

// Where the ranks' threads run, all but each rank's first, which is not pinned: "2 threads: CPUs
// 0-1 of NUMA node 0 (...)", "4 threads in 2 ranks: CPUs 0-1 of ...; CPUs 4-5 of ... (...)".
std::string describe_threads(const std::vector<CpuPlacement>& ranks, int threads_per_rank);

}  // namespace quire
