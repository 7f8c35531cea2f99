#include "base/cpu_placement.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
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
  EXPECT_EQ(ranks[0].node_cpus, (std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7}));
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
  EXPECT_TRUE(ranks[1].node_cpus.empty());
}

TEST(CpuPlacement, IsDescribed) {
  const std::string but = " (a rank's first thread is not pinned)";
  const auto describe = [](const NumaTopology& topology, int threads, int ranks) {
    return describe_threads(place_ranks(topology, threads, ranks), threads);
  };
  EXPECT_EQ(describe(two_nodes(), 4, 1), "4 threads: CPUs 0, 2, 4, 6 of NUMA node 0" + but);
  const NumaTopology plain = read_numa_topology("numanode:2 core:4 pu:1");
  EXPECT_EQ(describe(plain, 6, 1), "6 threads: CPUs 0-5 of NUMA nodes 0 and 1" + but);
  EXPECT_EQ(describe(plain, 1, 2),
            "2 threads in 2 ranks: CPU 0 of NUMA node 0; CPU 4 of NUMA node 1" + but);
  EXPECT_EQ(describe(read_numa_topology("numanode:3 core:1 pu:1"), 3, 1),
            "3 threads: CPUs 0-2 of NUMA nodes 0, 1 and 2" + but);
  EXPECT_EQ(describe(two_nodes(), 17, 1), "17 threads: not pinned");
  EXPECT_EQ(describe(two_nodes(), 9, 2), "18 threads in 2 ranks: not pinned");
}

// Also where other threads of the process are bound elsewhere, as an engine's are.
TEST(CpuPlacement, OnlyCpusThatTheThreadMayUseAreTaken) {
  const NumaTopology all = numa_topology();
  if (all.cpus.cpus.size() < 2) GTEST_SKIP() << "there is one CPU only";
  for (const int cpu : {all.cpus.cpus.front(), all.cpus.cpus.back()}) {
    NumaTopology seen;
    std::thread([&] {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cpu, &set);
      ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
      seen = numa_topology();
    }).join();
    EXPECT_EQ(seen.cpus.cpus, std::vector<int>{cpu});
    EXPECT_EQ(seen.cpus.num_physical_cores, 1);
  }
}

int memory_policy() {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 ? mode : -1;
}

// On any machine: node 0 is there. Threads inherit the policy.
TEST(CpuPlacement, MemoryOfThreadsComesFromTheNode) {
  if (memory_policy() < 0) GTEST_SKIP() << "the system has no NUMA policies here";
  const int before = memory_policy();
  int of_child = -1;
  bool is_set = false;
  std::thread([&] {
    is_set = take_memory_from({0});
    std::thread([&] { of_child = memory_policy(); }).join();
  }).join();
  if (!is_set) GTEST_SKIP() << "the system lets nobody choose where memory lies";
  EXPECT_NE(of_child, MPOL_DEFAULT);
  EXPECT_EQ(memory_policy(), before) << "other threads stay as they are";
}

TEST(CpuPlacement, OnOneNodeNothingIsBound) {
  const NumaTopology topology = read_numa_topology("core:4 pu:1");
  std::thread([&] {
    const int before = memory_policy();
    run_at(place_ranks(topology, 4, 1).front());
    EXPECT_EQ(memory_policy(), before);
  }).join();
}

TEST(CpuPlacement, APolicyOfTheUsersStays) {
  std::thread([] {
    const unsigned long node0 = 1;
    if (syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &node0, 8 * sizeof(node0)) != 0) {
      GTEST_SKIP() << "the system lets nobody choose where memory lies";
    }
    EXPECT_FALSE(take_memory_from({0}));
    EXPECT_EQ(memory_policy(), MPOL_INTERLEAVE);
  }).join();
}

// A machine that is not this one: what the system refuses is passed over.
TEST(CpuPlacement, NodesThatAreNotThereAreRefused) {
  std::thread([] { EXPECT_FALSE(take_memory_from({4000})); }).join();
}

}  // namespace
}  // namespace quire
