#include "base/cpu_placement.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

namespace quire {
namespace {

// Two nodes of four cores with two threads each, numbered node by node and core by core.
NumaTopology two_nodes() {
  return read_numa_topology("numanode:2 core:4 pu:2");
}

TEST(CpuPlacement, TheTopologyTellsTheNodesOfCores) {
  const NumaTopology topology = two_nodes();
  EXPECT_EQ(topology.cpus.num_physical_cores, 8);
  EXPECT_EQ(topology.cpus.cpus,
            (std::vector<int>{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}));
  EXPECT_EQ(topology.nodes, (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}));
  const NumaTopology here = numa_topology();
  EXPECT_EQ(here.nodes.size(), here.cpus.cpus.size());
  EXPECT_EQ(here.cpus.cpus, cpu_topology().cpus);
}

TEST(CpuPlacement, RanksAreSpreadOverNodes) {
  const auto ranks = place_ranks(two_nodes(), 2, 2);
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0].cpus, (std::vector<int>{0, 2}));
  EXPECT_EQ(ranks[0].nodes, (std::vector<int>{0}));
  EXPECT_EQ(ranks[1].cpus, (std::vector<int>{8, 10}));
  EXPECT_EQ(ranks[1].nodes, (std::vector<int>{1}));
  const auto three = place_ranks(two_nodes(), 2, 3);
  EXPECT_EQ(three[1].cpus, (std::vector<int>{4, 6}));
  EXPECT_EQ(three[2].nodes, (std::vector<int>{1}));
}

TEST(CpuPlacement, ARankOfMoreThreadsThanANodeHasCoresRunsOnBoth) {
  const auto one = place_ranks(two_nodes(), 6, 1);
  EXPECT_EQ(one.front().cpus, (std::vector<int>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(one.front().nodes, (std::vector<int>{0, 1}));
  // Three ranks of three do not fit on nodes of four: they follow each other.
  const auto three = place_ranks(two_nodes(), 3, 3);
  EXPECT_EQ(three[1].nodes, (std::vector<int>{0, 1}));
  EXPECT_EQ(three[2].cpus, (std::vector<int>{12, 14, 1}));
}

TEST(CpuPlacement, MoreThreadsThanCpusAreNotPinned) {
  for (const CpuPlacement& rank : place_ranks(two_nodes(), 9, 2)) {
    EXPECT_TRUE(rank.cpus.empty());
    EXPECT_TRUE(rank.nodes.empty());
  }
}

TEST(CpuPlacement, OneNodeIsAsBefore) {
  const auto ranks = place_ranks(read_numa_topology("core:4 pu:2"), 2, 2);
  EXPECT_EQ(ranks[1].cpus, (std::vector<int>{4, 6}));
  EXPECT_EQ(ranks[1].nodes, (std::vector<int>{0}));
}

TEST(CpuPlacement, IsDescribed) {
  EXPECT_EQ(describe(place_ranks(two_nodes(), 4, 1)), "CPUs 0, 2, 4, 6 of NUMA node 0");
  EXPECT_EQ(describe(place_ranks(read_numa_topology("numanode:2 core:4 pu:1"), 6, 1)),
            "CPUs 0-5 of NUMA nodes 0 and 1");
  EXPECT_EQ(describe(place_ranks(read_numa_topology("numanode:2 core:4 pu:1"), 1, 2)),
            "2 ranks: CPU 0 of NUMA node 0; CPU 4 of NUMA node 1");
  EXPECT_EQ(describe(place_ranks(two_nodes(), 17, 1)), "not pinned");
  EXPECT_EQ(describe(place_ranks(two_nodes(), 9, 2)), "not pinned");
}

int memory_policy() {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 ? mode : -1;
}

// On any machine: node 0 is there. Threads inherit the policy.
TEST(CpuPlacement, MemoryOfThreadsComesFromTheNode) {
  if (memory_policy() < 0) GTEST_SKIP() << "the system has no NUMA policies here";
  int of_child = -1;
  bool is_set = false;
  std::thread([&] {
    is_set = take_memory_from({0});
    std::thread([&] { of_child = memory_policy(); }).join();
  }).join();
  if (!is_set) GTEST_SKIP() << "the system lets nobody choose where memory lies";
  EXPECT_NE(of_child, MPOL_DEFAULT);
  EXPECT_EQ(memory_policy(), MPOL_DEFAULT) << "other threads stay as they are";
}

TEST(CpuPlacement, OnOneNodeNothingIsBound) {
  const NumaTopology topology = read_numa_topology("core:4 pu:1");
  std::thread([&] {
    const int before = memory_policy();
    run_at(place_ranks(topology, 4, 1).front(), topology);
    EXPECT_EQ(memory_policy(), before);
  }).join();
}

// A machine that is not this one: what the system refuses is passed over.
TEST(CpuPlacement, NodesThatAreNotThereAreRefused) {
  std::thread([] { EXPECT_FALSE(take_memory_from({4000})); }).join();
}

}  // namespace
}  // namespace quire
