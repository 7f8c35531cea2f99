#include "runner/rank_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

using testing::ElementsAre;

TEST(RankLayout, HasTheSamplingRankOnNode0) {
  EXPECT_THAT(nodes_of_ranks(1, 1, 1), ElementsAre(0));
  EXPECT_THAT(nodes_of_ranks(2, 1, 2), ElementsAre(0, 1));
  EXPECT_THAT(nodes_of_ranks(1, 2, 2), ElementsAre(1, 0));
  EXPECT_THAT(nodes_of_ranks(2, 2, 2), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(nodes_of_ranks(2, 2, 4), ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(nodes_of_ranks(1, 4, 2), ElementsAre(1, 1, 0, 0));
  for (int tensor = 1; tensor <= 6; ++tensor) {
    for (int stages = 1; stages <= 6; ++stages) {
      for (int nodes = 1; nodes <= tensor * stages; ++nodes) {
        if (tensor * stages % nodes != 0) continue;
        const std::vector<int> layout = nodes_of_ranks(tensor, stages, nodes);
        EXPECT_EQ(layout[static_cast<size_t>(tensor * (stages - 1))], 0);
        for (int node = 0; node < nodes; ++node) {
          EXPECT_EQ(std::ranges::count(layout, node), tensor * stages / nodes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
