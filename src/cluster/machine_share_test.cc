#include "cluster/machine_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cluster/cluster_test_util.h"

namespace quire::cluster {
namespace {

using testing::Each;
using testing::HasSubstr;
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

// What each node says, where node i has gpus[i].
std::vector<std::string> errors_of_gpus(const std::vector<std::vector<GpuId>>& gpus) {
  return run_nodes(static_cast<int>(gpus.size()), [&](const std::shared_ptr<NodeGroup>& group) {
    check_gpus_are_apart(*group, gpus[static_cast<size_t>(group->node())]);
  });
}

TEST(GpusOfNodes, MayNotBeTakenTwice) {
  const GpuId first{0x1a, 0x2b, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 1, 2, 3, 4, 5, 0xff};
  GpuId second = first;
  second[15] = 0;
  GpuId third = first;
  third[0] = 0xff;
  EXPECT_THAT(errors_of_gpus({{first}, {second}, {third}}), Each(IsEmpty()));
  EXPECT_THAT(errors_of_gpus({{first, third}, {second, first}}),
              Each(HasSubstr("Nodes 0 and 1 both take GPU-1a2b0000-ffff-0000-0000-0102030405ff; "
                             "expected a GPU of its own for each rank")));
  EXPECT_THAT(errors_of_gpus({{first}, {second}, {second}}),
              Each(HasSubstr("Nodes 1 and 2 both take GPU-1a2b0000")));
  EXPECT_THAT(errors_of_gpus({{GpuId{}}, {GpuId{}}}), Each(IsEmpty())) << "they are not known";
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
