#include "cluster/machine_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cluster/cluster_test_util.h"

namespace quire::cluster {
namespace {

using testing::Each;
using testing::IsEmpty;

struct Place {
  int64_t machine = 0;
  CpuTopology cpus;
};

// The share of each node, where node i is at places[i].
std::vector<MachineShare> shares_of(const std::vector<Place>& places) {
  std::vector<MachineShare> shares(places.size());
  const auto errors =
      run_nodes(static_cast<int>(places.size()), [&](const std::shared_ptr<NodeGroup>& group) {
        const auto node = static_cast<size_t>(group->node());
        shares[node] = share_machine(*group, places[node].machine, places[node].cpus);
      });
  EXPECT_THAT(errors, Each(IsEmpty()));
  return shares;
}

TEST(MachineShare, NodesOnAllCoresDivideThem) {
  const CpuTopology all{.cpus = {0, 2, 4, 6, 8, 1, 3, 5, 7, 9}, .num_physical_cores = 5};
  for (const MachineShare& share : shares_of({{7, all}, {7, all}})) {
    EXPECT_EQ(share.num_nodes, 2);
    EXPECT_EQ(share.num_cores, 2);
    EXPECT_TRUE(share.shares_cpus);
  }
}

TEST(MachineShare, NodesThatAreBoundToCoresHaveThemForThemselves) {
  const auto shares = shares_of({{7, {.cpus = {0, 1, 2}, .num_physical_cores = 3}},
                                 {7, {.cpus = {64, 1023}, .num_physical_cores = 2}}});
  EXPECT_EQ(shares[0].num_nodes, 2);
  EXPECT_EQ(shares[0].num_cores, 3);
  EXPECT_FALSE(shares[0].shares_cpus);
  EXPECT_EQ(shares[1].num_cores, 2);
  EXPECT_FALSE(shares[1].shares_cpus);
}

TEST(MachineShare, CoresOfSeveralNodesCountForEachInPart) {
  const auto shares = shares_of({{7, {.cpus = {0, 1, 2, 3}, .num_physical_cores = 4}},
                                 {7, {.cpus = {2, 3}, .num_physical_cores = 2}},
                                 {8, {.cpus = {2, 3}, .num_physical_cores = 2}}});
  EXPECT_EQ(shares[0].num_cores, 3);
  EXPECT_TRUE(shares[0].shares_cpus);
  EXPECT_EQ(shares[1].num_cores, 1);
  EXPECT_EQ(shares[2].num_nodes, 1);
  EXPECT_EQ(shares[0].place, 0);
  EXPECT_EQ(shares[1].place, 1);
  EXPECT_EQ(shares[2].place, 0);
  EXPECT_EQ(shares[2].num_cores, 2);
  EXPECT_FALSE(shares[2].shares_cpus);
}

}  // namespace
}  // namespace quire::cluster
