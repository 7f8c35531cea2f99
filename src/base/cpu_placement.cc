#include "base/cpu_placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Adds the CPUs of the machine's cores to `topology`: the first of each core, then the rest.
void add_cores(hwloc_topology_t handle, NumaTopology& topology) {
  const int num_cores = hwloc_get_nbobjs_by_type(handle, HWLOC_OBJ_CORE);
  std::vector<int> siblings;
  std::vector<int> nodes_of_siblings;
  for (int i = 0; i < num_cores; ++i) {
    const hwloc_obj_t core =
        hwloc_get_obj_by_type(handle, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
    const int node = std::max(hwloc_bitmap_first(core->nodeset), 0);
    int cpu = hwloc_bitmap_first(core->cpuset);
    if (cpu < 0) continue;
    topology.cpus.cpus.push_back(cpu);
    topology.nodes.push_back(node);
    for (cpu = hwloc_bitmap_next(core->cpuset, cpu); cpu >= 0;
         cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
      siblings.push_back(cpu);
      nodes_of_siblings.push_back(node);
    }
  }
  topology.cpus.num_physical_cores = static_cast<int>(topology.cpus.cpus.size());
  topology.cpus.cpus.insert(topology.cpus.cpus.end(), siblings.begin(), siblings.end());
  topology.nodes.insert(topology.nodes.end(), nodes_of_siblings.begin(), nodes_of_siblings.end());
}

// For systems that do not tell about cores: every CPU counts as one, all of one node.
void add_allowed_cpus(NumaTopology& topology) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) CPU_SET(0, &set);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) topology.cpus.cpus.push_back(cpu);
  }
  topology.cpus.num_physical_cores = static_cast<int>(topology.cpus.cpus.size());
  topology.nodes.assign(topology.cpus.cpus.size(), 0);
}

// `description`: of a synthetic machine; empty: this one, as far as the process may use it.
NumaTopology load_topology(const std::string& description) {
  NumaTopology topology;
  hwloc_topology_t handle = nullptr;
  if (hwloc_topology_init(&handle) == 0) {
    // Cores only: looking for devices takes time and loads drivers' libraries.
    hwloc_topology_set_io_types_filter(handle, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (description.empty()) {
      hwloc_topology_set_flags(
          handle, HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING | HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
    } else {
      const int error = hwloc_topology_set_synthetic(handle, description.c_str());
      check(error == 0, "a machine in hwloc's synthetic notation");
    }
    if (hwloc_topology_load(handle) == 0) add_cores(handle, topology);
    hwloc_topology_destroy(handle);
  }
  if (topology.cpus.cpus.empty()) add_allowed_cpus(topology);
  return topology;
}

std::vector<int> nodes_of(const NumaTopology& topology) {
  const std::set<int> nodes(topology.nodes.begin(), topology.nodes.end());
  return {nodes.begin(), nodes.end()};
}

CpuPlacement placement_of(const NumaTopology& topology, const std::vector<size_t>& places) {
  CpuPlacement placement;
  std::set<int> nodes;
  for (const size_t place : places) {
    placement.cpus.push_back(topology.cpus.cpus[place]);
    nodes.insert(topology.nodes[place]);
  }
  placement.nodes.assign(nodes.begin(), nodes.end());
  return placement;
}

// The ranks divided evenly over the nodes; empty where a node has too few cores for its ranks.
std::vector<CpuPlacement> spread_over_nodes(const NumaTopology& topology, size_t threads,
                                            size_t num_ranks) {
  const std::vector<int> nodes = nodes_of(topology);
  if (nodes.size() < 2 || num_ranks < 2) return {};
  std::map<int, std::vector<size_t>> cores;  // of each node, places in the topology
  for (size_t i = 0; i < static_cast<size_t>(topology.cpus.num_physical_cores); ++i) {
    cores[topology.nodes[i]].push_back(i);
  }
  std::map<int, size_t> taken;
  std::vector<CpuPlacement> ranks;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    const int node = nodes[rank * nodes.size() / num_ranks];
    const size_t first = taken[node];
    if (first + threads > cores[node].size()) return {};
    taken[node] += threads;
    const auto begin = cores[node].begin() + static_cast<std::ptrdiff_t>(first);
    ranks.push_back(placement_of(topology, {begin, begin + static_cast<std::ptrdiff_t>(threads)}));
  }
  return ranks;
}

// "0-3, 8".
std::string describe_cpus(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  std::vector<std::string> ranges;
  for (size_t begin = 0; begin < cpus.size();) {
    size_t end = begin + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    ranges.push_back(end == begin + 1 ? std::to_string(cpus[begin])
                                      : fmt::format("{}-{}", cpus[begin], cpus[end - 1]));
    begin = end;
  }
  return fmt::format("{}", fmt::join(ranges, ", "));
}

std::string describe(const CpuPlacement& rank) {
  if (rank.cpus.empty()) return "not pinned";
  const bool is_one = rank.nodes.size() == 1;
  return fmt::format("CPU{} {} of NUMA node{} {}", rank.cpus.size() == 1 ? "" : "s",
                     describe_cpus(rank.cpus), is_one ? "" : "s", fmt::join(rank.nodes, " and "));
}

}  // namespace

NumaTopology numa_topology() {
  return load_topology("");
}

NumaTopology read_numa_topology(const std::string& synthetic) {
  return load_topology(synthetic);
}

std::vector<CpuPlacement> place_ranks(const NumaTopology& topology, int threads_per_rank,
                                      int num_ranks) {
  const auto threads = static_cast<size_t>(threads_per_rank);
  const auto ranks = static_cast<size_t>(num_ranks);
  if (threads * ranks > topology.cpus.cpus.size()) return std::vector<CpuPlacement>(ranks);
  std::vector<CpuPlacement> placements = spread_over_nodes(topology, threads, ranks);
  if (!placements.empty()) return placements;
  for (size_t rank = 0; rank < ranks; ++rank) {
    std::vector<size_t> places;
    for (size_t i = 0; i < threads; ++i) places.push_back(rank * threads + i);
    placements.push_back(placement_of(topology, places));
  }
  return placements;
}

void run_at(const CpuPlacement& placement, const NumaTopology& topology) {
  if (placement.cpus.empty() || nodes_of(topology).size() < 2) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t i = 0; i < topology.cpus.cpus.size(); ++i) {
    const int cpu = topology.cpus.cpus[i];
    if (std::ranges::find(placement.nodes, topology.nodes[i]) == placement.nodes.end()) continue;
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  (void)sched_setaffinity(0, sizeof(set), &set);
  (void)take_memory_from(placement.nodes);
}

bool take_memory_from(const std::vector<int>& nodes) {
  hwloc_topology_t handle = nullptr;
  if (hwloc_topology_init(&handle) != 0) return false;
  hwloc_topology_set_io_types_filter(handle, HWLOC_TYPE_FILTER_KEEP_NONE);
  bool is_set = false;
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  if (set != nullptr && hwloc_topology_load(handle) == 0) {
    for (const int node : nodes) hwloc_bitmap_set(set, static_cast<unsigned>(node));
    const hwloc_membind_policy_t policy =
        nodes.size() == 1 ? HWLOC_MEMBIND_BIND : HWLOC_MEMBIND_INTERLEAVE;
    // Not strict: where a node is full, memory of another is better than none.
    is_set =
        hwloc_set_membind(handle, set, policy, HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) == 0;
  }
  hwloc_bitmap_free(set);
  hwloc_topology_destroy(handle);
  return is_set;
}

std::string describe(const std::vector<CpuPlacement>& ranks) {
  // None is pinned where one is not.
  if (ranks.size() == 1 || ranks.front().cpus.empty()) return describe(ranks.front());
  std::vector<std::string> each;
  for (const CpuPlacement& rank : ranks) each.push_back(describe(rank));
  return fmt::format("{} ranks: {}", ranks.size(), fmt::join(each, "; "));
}

}  // namespace quire
