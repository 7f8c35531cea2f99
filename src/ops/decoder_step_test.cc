#include "ops/decoder_step.h"

#include <gtest/gtest.h>

namespace quire::ops {
namespace {

TEST(DecoderStep, DeclinesWeightsThatItsKernelDoesNotRead) {
  const Weight embedding(DType::kBFloat16, 16, 8);
  const Weight dense(DType::kBFloat16, 8, 8);
  const Weight float8(WeightFormat::float8(), 8, 8);
  DecoderStepLayer plain;
  plain.qkv = plain.o = plain.gate_up = plain.down = &dense;
  DecoderStepLayer mixed = plain;
  mixed.down = &float8;
  for (const bool quantised : {false, true}) {
    const DecoderStepLayer layers[] = {plain, quantised ? mixed : plain};
    DecoderStepModel model;
    model.embedding = &embedding;
    model.layers = layers;
    EXPECT_EQ(DecoderStep::takes_weights(model), !quantised);
  }
}

}  // namespace
}  // namespace quire::ops
