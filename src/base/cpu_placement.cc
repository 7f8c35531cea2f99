#include "base/cpu_placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Adds the CPUs of the machine's cores that may_use() allows to `topology`: the first of each core,
// then the rest.
template <typename MayUse>
void add_cores(hwloc_topology_t handle, const MayUse& may_use, NumaTopology& topology) {
  const int num_cores = hwloc_get_nbobjs_by_type(handle, HWLOC_OBJ_CORE);
  std::vector<int> siblings;
  std::vector<int> nodes_of_siblings;
  for (int i = 0; i < num_cores; ++i) {
    const hwloc_obj_t core =
        hwloc_get_obj_by_type(handle, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
    const int node = std::max(hwloc_bitmap_first(core->nodeset), 0);
    bool is_first = true;
    for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
      if (!may_use(cpu)) continue;
      (is_first ? topology.cpus.cpus : siblings).push_back(cpu);
      (is_first ? topology.nodes : nodes_of_siblings).push_back(node);
      is_first = false;
    }
  }
  topology.cpus.num_physical_cores = static_cast<int>(topology.cpus.cpus.size());
  topology.cpus.cpus.insert(topology.cpus.cpus.end(), siblings.begin(), siblings.end());
  topology.nodes.insert(topology.nodes.end(), nodes_of_siblings.begin(), nodes_of_siblings.end());
}

// That the calling thread may use; none where the system does not tell.
std::set<int> cpus_of_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::set<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.insert(cpu);
  }
  return cpus;
}

// For systems that do not tell about cores: every CPU counts as one, all of one node.
void add_allowed_cpus(const std::set<int>& allowed, NumaTopology& topology) {
  topology.cpus.cpus.assign(allowed.begin(), allowed.end());
  if (topology.cpus.cpus.empty()) topology.cpus.cpus.push_back(0);
  topology.cpus.num_physical_cores = static_cast<int>(topology.cpus.cpus.size());
  topology.nodes.assign(topology.cpus.cpus.size(), 0);
}

// `description`: of a synthetic machine; empty: this one, as far as the process may use it.
NumaTopology load_topology(const std::string& description) {
  NumaTopology topology;
  // hwloc does not restrict itself where threads of the process are bound to different CPUs.
  const std::set<int> allowed = description.empty() ? cpus_of_thread() : std::set<int>();
  const auto may_use = [&](int cpu) { return allowed.empty() || allowed.contains(cpu); };
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
    if (hwloc_topology_load(handle) == 0) add_cores(handle, may_use, topology);
    hwloc_topology_destroy(handle);
  }
  if (topology.cpus.cpus.empty()) add_allowed_cpus(allowed, topology);
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
  if (nodes_of(topology).size() < 2) return placement;
  for (size_t i = 0; i < topology.cpus.cpus.size(); ++i) {
    if (nodes.contains(topology.nodes[i])) placement.node_cpus.push_back(topology.cpus.cpus[i]);
  }
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

// "0", "0 and 1", "0, 1 and 2".
std::string describe_nodes(std::span<const int> nodes) {
  if (nodes.size() == 1) return std::to_string(nodes.front());
  return fmt::format("{} and {}", fmt::join(nodes.first(nodes.size() - 1), ", "), nodes.back());
}

std::string describe(const CpuPlacement& rank) {
  return fmt::format("CPU{} {} of NUMA node{} {}", rank.cpus.size() == 1 ? "" : "s",
                     describe_cpus(rank.cpus), rank.nodes.size() == 1 ? "" : "s",
                     describe_nodes(rank.nodes));
}

// Whether the calling thread has the system's own memory policy.
bool has_default_policy(hwloc_topology_t handle, hwloc_bitmap_t scratch) {
  hwloc_membind_policy_t policy = HWLOC_MEMBIND_MIXED;
  return hwloc_get_membind(handle, scratch, &policy,
                           HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) == 0 &&
         (policy == HWLOC_MEMBIND_FIRSTTOUCH || policy == HWLOC_MEMBIND_DEFAULT);
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

void run_at(const CpuPlacement& placement) {
  if (placement.node_cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : placement.node_cpus) {
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
  if (set != nullptr && hwloc_topology_load(handle) == 0 && has_default_policy(handle, set)) {
    hwloc_bitmap_zero(set);
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

std::string describe_threads(const std::vector<CpuPlacement>& ranks, int threads_per_rank) {
  const auto count = static_cast<size_t>(threads_per_rank) * ranks.size();
  std::string text = fmt::format("{} thread{}", count, count == 1 ? "" : "s");
  if (ranks.size() > 1) text += fmt::format(" in {} ranks", ranks.size());
  // None is pinned where one is not.
  if (ranks.front().cpus.empty()) return text + ": not pinned";
  std::vector<std::string> each;
  for (const CpuPlacement& rank : ranks) each.push_back(describe(rank));
  return fmt::format("{}: {} (a rank's first thread is not pinned)", text, fmt::join(each, "; "));
}

}  // namespace quire
