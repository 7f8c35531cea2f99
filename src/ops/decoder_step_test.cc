#include "ops/decoder_step.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/counting_memory.h"

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

// Slots of a model with 4 query heads and 2 KV heads of 8.
TEST(DecoderStep, TakesSlotsOfFewRanksOnOneRank) {
  const Weight qkv(DType::kBFloat16, 64, 16);
  const Weight o(DType::kBFloat16, 16, 32);
  const Weight gate_up(DType::kBFloat16, 48, 16);
  const Weight down(DType::kBFloat16, 16, 24);
  LoraSlotLayer slots[kNumDecoderMatrices] = {
      {.max_ranks = 192, .num_parts = 3, .first_output = {0, 32, 48}, .num_outputs = {32, 16, 16}},
      {.max_ranks = 64, .num_parts = 1, .num_outputs = {16}},
      {.max_ranks = 128, .num_parts = 2, .first_output = {0, 24}, .num_outputs = {24, 24}},
      {.max_ranks = 64, .num_parts = 1, .num_outputs = {16}}};
  DecoderStepLayer layer;
  layer.qkv = &qkv;
  layer.o = &o;
  layer.gate_up = &gate_up;
  layer.down = &down;
  DecoderStepModel model;
  model.layers = {&layer, 1};
  EXPECT_FALSE(DecoderStep::takes_slots(model)) << "no adapters are served";
  for (int i = 0; i < kNumDecoderMatrices; ++i) layer.slots[i] = &slots[i];
  EXPECT_TRUE(DecoderStep::takes_slots(model));
  model.peers.size = 2;
  EXPECT_FALSE(DecoderStep::takes_slots(model));
  model.peers.size = 1;
  slots[kDownMatrix].max_ranks = 80;
  EXPECT_FALSE(DecoderStep::takes_slots(model));
  slots[kDownMatrix].max_ranks = 64;
  slots[kQkvMatrix].first_output[1] = 40;
  EXPECT_FALSE(DecoderStep::takes_slots(model));
}

ForwardBatch decodes(int64_t num_seqs, int64_t num_queries, int64_t context) {
  ForwardBatch batch;
  batch.num_tokens = num_seqs * num_queries;
  batch.num_seqs = batch.num_decode_seqs = num_seqs;
  batch.max_decode_queries = num_queries;
  batch.max_context_len = context;
  return batch;
}

TEST(DecoderStep, TakesFewSequencesAndFewDrafts) {
  constexpr int64_t kSmall = 1024;
  constexpr int64_t kLarge = 4096;
  constexpr int64_t kLong = 100000;
  const WeightFormat dense = DType::kBFloat16;
  const auto takes = [&](const ForwardBatch& batch, int64_t hidden, const WeightFormat& weights,
                         int num_ranks = 1) {
    return DecoderStep::takes(batch, hidden, weights, num_ranks);
  };
  EXPECT_TRUE(takes(decodes(4, 1, kLong), kSmall, dense));
  EXPECT_FALSE(takes(decodes(5, 1, 10), kSmall, dense));
  EXPECT_TRUE(takes(decodes(4, 1, kLong), kLarge, dense));
  EXPECT_FALSE(takes(decodes(5, 1, kLong), kLarge, dense));
  EXPECT_TRUE(takes(decodes(8, 1, 1024), kLarge, dense));
  EXPECT_FALSE(takes(decodes(8, 1, 1025), kLarge, dense));
  EXPECT_FALSE(takes(decodes(9, 1, 10), kLarge, dense));
  EXPECT_TRUE(takes(decodes(2, 1, kLong), kLarge, dense, 2));
  EXPECT_FALSE(takes(decodes(3, 1, 10), kLarge, dense, 2));
  EXPECT_TRUE(takes(decodes(2, 1, kLong), kLarge, WeightFormat::float8()));
  EXPECT_FALSE(takes(decodes(3, 1, 10), kLarge, WeightFormat::float8()));
  for (const int64_t hidden : {kSmall, kLarge}) {
    EXPECT_TRUE(takes(decodes(1, 5, 1024), hidden, dense));
    EXPECT_TRUE(takes(decodes(2, 2, 1024), hidden, dense));
    EXPECT_FALSE(takes(decodes(1, 5, 1025), hidden, dense));
    EXPECT_FALSE(takes(decodes(1, 6, 10), hidden, dense));
    EXPECT_TRUE(takes(decodes(1, 2, 10), hidden, WeightFormat::float8()));
    EXPECT_FALSE(takes(decodes(1, 3, 10), hidden, WeightFormat::float8()));
  }
  ForwardBatch with_prompt = decodes(1, 1, 10);
  with_prompt.num_seqs = 2;
  EXPECT_FALSE(takes(with_prompt, kSmall, dense));
}

TEST(DecoderStep, TakesAStageWithoutTheEmbedding) {
  const Weight embedding(DType::kBFloat16, 16, 8);
  const Weight dense(DType::kBFloat16, 8, 8);
  DecoderStepLayer layer;
  layer.qkv = layer.o = layer.gate_up = layer.down = &dense;
  const DecoderStepLayer layers[] = {layer};
  DecoderStepModel model;
  model.layers = layers;
  for (const Weight* table : {static_cast<const Weight*>(nullptr), &embedding}) {
    model.embedding = table;
    model.dtype = DType::kBFloat16;
    EXPECT_TRUE(DecoderStep::takes_weights(model));
    model.dtype = DType::kFloat16;
    EXPECT_FALSE(DecoderStep::takes_weights(model));
  }
}

TEST(DecoderStep, TakesFloat8OfOneKind) {
  const Weight embedding(DType::kBFloat16, 16, 8);
  const Weight dense(DType::kBFloat16, 8, 8);
  const Weight float8(WeightFormat::float8(), 8, 8);
  CountingMemory memory;
  const Device gpu = {.type = DeviceType::kCuda, .memory = &memory};
  const Weight blocks(WeightFormat::float8(kFloat8Block), 8, 8, gpu);
  const auto takes = [&](const Weight& most, const Weight& down) {
    DecoderStepLayer plain;
    plain.qkv = plain.o = plain.gate_up = plain.down = &most;
    DecoderStepLayer last = plain;
    last.down = &down;
    const DecoderStepLayer layers[] = {plain, last};
    DecoderStepModel model;
    model.embedding = &embedding;
    model.layers = layers;
    return DecoderStep::takes_weights(model);
  };
  EXPECT_TRUE(takes(float8, float8));
  EXPECT_TRUE(takes(blocks, blocks));
  EXPECT_FALSE(takes(float8, blocks));
  EXPECT_FALSE(takes(float8, dense));
}

TEST(DecoderStep, TakesIntegersOfOneKindInTheirOrder) {
  const Weight embedding(DType::kBFloat16, 16, 8);
  CountingMemory memory;
  const Device gpu = {.type = DeviceType::kCuda, .memory = &memory};
  const Weight int4(WeightFormat::integers(4, 128), 8, 8, gpu);
  const Weight int8(WeightFormat::integers(8, 128), 8, 8, gpu);
  Weight permuted(WeightFormat::integers(4, 128), 8, 8, gpu);
  permuted.reserve_permutation();
  const auto takes = [&](const Weight& most, const Weight& down, int ranks = 1) {
    DecoderStepLayer layer;
    layer.qkv = layer.o = layer.gate_up = &most;
    layer.down = &down;
    const DecoderStepLayer layers[] = {layer};
    DecoderStepModel model;
    model.embedding = &embedding;
    model.layers = layers;
    model.peers.size = ranks;
    return DecoderStep::takes_weights(model);
  };
  EXPECT_TRUE(takes(int4, int4));
  EXPECT_FALSE(takes(int4, int4, 2));
  EXPECT_TRUE(takes(int8, int8));
  EXPECT_FALSE(takes(int4, int8));
  EXPECT_TRUE(takes(int4, permuted));
  permuted.set_permutation(std::vector<int32_t>{1, 0, 2, 3, 4, 5, 6, 7});
  EXPECT_FALSE(takes(int4, permuted));
}

}  // namespace
}  // namespace quire::ops
