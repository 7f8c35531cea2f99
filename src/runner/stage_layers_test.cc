#include "runner/stage_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace quire {
namespace {

using Layers = std::vector<int64_t>;

TEST(StageLayers, AreEvenWhereTheOutputLayerCostsNothing) {
  EXPECT_EQ(balanced_stage_layers(28, 4, 1, 0), (Layers{7, 7, 7, 7}));
  EXPECT_EQ(balanced_stage_layers(28, 1, 1, 0), (Layers{28}));
  EXPECT_EQ(balanced_stage_layers(3, 3, 1, 0), (Layers{1, 1, 1}));
}

TEST(StageLayers, AreFewerBesideTheOutputLayer) {
  // It costs as much as three layers.
  EXPECT_EQ(balanced_stage_layers(13, 4, 1, 3), (Layers{4, 4, 4, 1}));
  EXPECT_EQ(balanced_stage_layers(37, 4, 1, 3), (Layers{10, 10, 10, 7}));
  // It costs more than all layers together.
  EXPECT_EQ(balanced_stage_layers(6, 3, 1, 100), (Layers{2, 3, 1}));
}

TEST(StageLayers, AreFewerBesideTheEmbedding) {
  EXPECT_EQ(balanced_stage_layers(11, 4, 1, 1), (Layers{3, 3, 3, 2}));
  EXPECT_EQ(balanced_stage_layers(10, 4, 1, 1), (Layers{2, 3, 3, 2}));
}

TEST(StageLayers, AreFewerBesideADrafter) {
  // It costs as much as two layers, and the output layer as one.
  EXPECT_EQ(balanced_stage_layers(9, 2, 1, 1, 2), (Layers{4, 5}));
  EXPECT_EQ(balanced_stage_layers(13, 4, 1, 1, 2), (Layers{2, 4, 4, 3}));
  // It costs more than all layers together.
  EXPECT_EQ(balanced_stage_layers(7, 3, 1, 0, 100), (Layers{1, 1, 5}));
}

double slowest(const Layers& layers, double output, double drafts = 0) {
  double most = static_cast<double>(layers.back()) + output;
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    most = std::max(most, static_cast<double>(layers[i]) + (i == 0 ? drafts : 0));
  }
  return most;
}

// The least that any division of two or three stages makes of the slowest stage.
double best_beside(int64_t num_layers, int num_stages, double output, double drafts) {
  double least = 1e9;
  for (int64_t first = 1; first <= num_layers - num_stages + 1; ++first) {
    for (int64_t last = 1; last <= num_layers - first - (num_stages - 2); ++last) {
      const int64_t between = num_layers - first - last;
      if (num_stages == 2 && between > 0) continue;
      const Layers layers = num_stages == 2 ? Layers{first, last} : Layers{first, between, last};
      least = std::min(least, slowest(layers, output, drafts));
    }
  }
  return least;
}

TEST(StageLayers, MakeTheSlowestStageFastBesideADrafter) {
  for (const double drafts : {0.2, 1.0, 3.5, 40.0}) {
    for (const double output : {0.0, 1.0, 6.0}) {
      for (int64_t num_layers = 3; num_layers <= 20; ++num_layers) {
        for (const int stages : {2, 3}) {
          const Layers layers = balanced_stage_layers(num_layers, stages, 1, output, drafts);
          ASSERT_EQ(std::ssize(layers), stages);
          EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), int64_t{0}), num_layers);
          EXPECT_GE(*std::ranges::min_element(layers), 1);
          EXPECT_EQ(slowest(layers, output, drafts),
                    best_beside(num_layers, stages, output, drafts));
        }
      }
    }
  }
}

// The least that any division makes of the slowest stage.
double best(int64_t num_layers, int num_stages, double output) {
  if (num_stages == 1) return static_cast<double>(num_layers) + output;
  double least = 1e9;
  for (int64_t last = 1; last <= num_layers - num_stages + 1; ++last) {
    const int64_t rest = num_layers - last;
    const int64_t others = num_stages - 1;
    least = std::min(least, std::max(static_cast<double>(last) + output,
                                     static_cast<double>((rest + others - 1) / others)));
  }
  return least;
}

TEST(StageLayers, MakeTheSlowestStageFast) {
  for (const double output : {0.0, 0.3, 1.0, 2.5, 20.0}) {
    for (int64_t num_layers = 1; num_layers <= 40; ++num_layers) {
      for (int stages = 1; stages <= std::min<int64_t>(num_layers, 9); ++stages) {
        const Layers layers = balanced_stage_layers(num_layers, stages, 1, output);
        ASSERT_EQ(std::ssize(layers), stages);
        EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), int64_t{0}), num_layers);
        EXPECT_GE(*std::ranges::min_element(layers), 1);
        EXPECT_EQ(slowest(layers, output), best(num_layers, stages, output));
      }
    }
  }
}

}  // namespace
}  // namespace quire
