#include "models/model.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(StageOfModel, HasItsRangeOfTheLayers) {
  ModelOptions model;
  model.config.num_hidden_layers = 7;
  model.stage_layers = {2, 4, 1};
  int64_t next = 0;
  for (int stage = 0; stage < 3; ++stage) {
    const ModelOptions part = stage_of_model(model, stage);
    EXPECT_EQ(part.first_layer, next);
    EXPECT_EQ(part.last_layer - part.first_layer, model.stage_layers[static_cast<size_t>(stage)]);
    next = part.last_layer;
  }
  EXPECT_EQ(next, 7);
}

TEST(StageOfModel, IsTheWholeWhereThereIsOne) {
  const ModelOptions part = stage_of_model({}, 0);
  EXPECT_EQ(part.first_layer, 0);
  EXPECT_EQ(part.last_layer, -1);
}

}  // namespace
}  // namespace quire
