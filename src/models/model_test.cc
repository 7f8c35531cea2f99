#include "models/model.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(StageOfModel, CutsLayersEvenlyTheFirstHavingOneMore) {
  for (const int64_t num_layers : {1, 2, 7, 28, 61}) {
    ModelOptions model;
    model.config.num_hidden_layers = num_layers;
    for (int num_stages = 1; num_stages <= num_layers; ++num_stages) {
      int64_t next = 0;
      for (int stage = 0; stage < num_stages; ++stage) {
        const ModelOptions part = stage_of_model(model, stage, num_stages);
        EXPECT_EQ(part.first_layer, next);
        const int64_t one_more = stage < num_layers % num_stages ? 1 : 0;
        EXPECT_EQ(part.last_layer - part.first_layer, num_layers / num_stages + one_more);
        next = part.last_layer;
      }
      EXPECT_EQ(next, num_layers);
    }
  }
}

}  // namespace
}  // namespace quire
