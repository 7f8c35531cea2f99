#include "cluster/machine_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "quire/error.h"

namespace quire::cluster {
namespace {

constexpr size_t kMaxCpus = 1024;  // as the system's sets of CPUs have
constexpr size_t kWordBits = 32;
using CpuSet = std::bitset<kMaxCpus>;

// What node `from` says, on every node.
int64_t tell(NodeGroup& nodes, int from, int64_t mine) {
  return nodes.agree_least(from == nodes.node() ? mine : std::numeric_limits<int64_t>::max());
}

CpuSet set_of(const CpuTopology& topology) {
  CpuSet set;
  for (const int cpu : topology.cpus) {
    if (cpu >= 0 && static_cast<size_t>(cpu) < kMaxCpus) set.set(static_cast<size_t>(cpu));
  }
  return set;
}

CpuSet tell_cpus(NodeGroup& nodes, int from, const CpuSet& mine) {
  CpuSet told;
  for (size_t begin = 0; begin < kMaxCpus; begin += kWordBits) {
    int64_t word = 0;
    for (size_t bit = 0; bit < kWordBits; ++bit) {
      word |= static_cast<int64_t>(mine[begin + bit]) << bit;
    }
    word = tell(nodes, from, word);
    for (size_t bit = 0; bit < kWordBits; ++bit) told[begin + bit] = ((word >> bit) & 1) != 0;
  }
  return told;
}

// A core that n nodes may use counts as 1/n.
int share_of_cores(const CpuTopology& cpus, const std::vector<CpuSet>& sets) {
  constexpr double kRounding = 1e-6;
  double cores = 0;
  for (int i = 0; i < cpus.num_physical_cores; ++i) {
    const auto cpu = static_cast<size_t>(cpus.cpus[static_cast<size_t>(i)]);
    const auto users = cpu >= kMaxCpus ? 1 : std::ranges::count_if(sets, [cpu](const CpuSet& set) {
      return set[cpu];
    });
    cores += 1.0 / static_cast<double>(std::max<int64_t>(users, 1));
  }
  return static_cast<int>(cores + kRounding);
}

GpuId tell_gpu(NodeGroup& nodes, int from, const GpuId& mine) {
  constexpr size_t kPart = sizeof(uint32_t);
  GpuId told;
  for (size_t begin = 0; begin < told.size(); begin += kPart) {
    uint32_t part = 0;
    std::memcpy(&part, &mine[begin], kPart);
    part = static_cast<uint32_t>(tell(nodes, from, part));
    std::memcpy(&told[begin], &part, kPart);
  }
  return told;
}

// As nvidia-smi -L writes it.
std::string text_of(const GpuId& gpu) {
  std::string text = "GPU";
  for (size_t i = 0; i < gpu.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", gpu[i]);
  }
  return text;
}

}  // namespace

int64_t machine_number() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return static_cast<int64_t>(std::hash<std::string>()(id) >> 1);
}

MachineShare share_machine(NodeGroup& nodes, int64_t machine, const CpuTopology& cpus) {
  std::vector<int64_t> machines;
  for (int node = 0; node < nodes.num_nodes(); ++node) {
    machines.push_back(tell(nodes, node, machine));
  }
  const CpuSet mine = set_of(cpus);
  std::vector<CpuSet> sets;  // of the nodes on this machine
  bool shares = false;
  for (int node = 0; node < nodes.num_nodes(); ++node) {
    const int64_t theirs = machines[static_cast<size_t>(node)];
    if (std::ranges::count(machines, theirs) == 1) continue;  // its machine is its own
    const CpuSet set = tell_cpus(nodes, node, mine);
    if (theirs != machine) continue;
    sets.push_back(set);
    shares = shares || (node != nodes.node() && (set & mine).any());
  }
  const auto earlier = machines.begin() + nodes.node();
  return {.num_nodes = static_cast<int>(std::ranges::count(machines, machine)),
          .place = static_cast<int>(std::count(machines.begin(), earlier, machine)),
          .num_cores = share_of_cores(cpus, sets),
          .shares_cpus = shares};
}

void check_gpus_are_apart(NodeGroup& nodes, std::span<const GpuId> gpus) {
  std::map<GpuId, int> taken;  // by which node
  for (int node = 0; node < nodes.num_nodes(); ++node) {
    for (const GpuId& mine : gpus) {
      const GpuId gpu = tell_gpu(nodes, node, mine);
      const auto [other, is_new] = taken.try_emplace(gpu, node);
      if (is_new || gpu == GpuId{}) continue;
      throw Error(
          fmt::format("Nodes {} and {} both take {}; expected a GPU of its own for each rank: "
                      "where nodes share "
                      "a machine, all of them see enough GPUs for all, or each has its own by "
                      "CUDA_VISIBLE_DEVICES.",
                      other->second, node, text_of(gpu)));
    }
  }
}

}  // namespace quire::cluster
