#include "runner/gpu_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/ceil_div.h"
#include "ops/cuda/decode_items.h"
#include "ops/sampling_noise.h"

namespace quire {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Pair;

constexpr int kBlockSize = 16;
constexpr int32_t kEos = 2;
constexpr uint64_t kSeed = 11;

NewSequence seeded_sequence(SequenceId id, std::vector<int32_t> prompt,
                            const SamplingParams& params) {
  Request request;
  request.prompt_token_ids = std::move(prompt);
  request.params = params;
  request.seed = kSeed;
  NewSequence added;
  added.id = id;
  added.request = std::make_shared<const Request>(std::move(request));
  return added;
}

// A table of sequences that hold `contexts` tokens, and the step that decodes each one's next. The
// step before has sampled it in the sequences' reverse order.
class Decodes {
 public:
  // Parameters are the defaults for sequences that `params` does not reach.
  explicit Decodes(const std::vector<int64_t>& contexts,
                   const std::vector<SamplingParams>& params = {})
      : table_({kEos}) {
    ScheduledBatch prompts;
    int32_t next_block = 0;
    for (size_t i = 0; i < contexts.size(); ++i) {
      prompts.added.push_back(
          seeded_sequence(i + 1, std::vector<int32_t>(static_cast<size_t>(contexts[i]), 5),
                          i < params.size() ? params[i] : SamplingParams()));
      ScheduledSequence scheduled;
      scheduled.id = i + 1;
      scheduled.num_tokens = contexts[i];
      scheduled.samples = true;
      for (int64_t block = 0; block <= contexts[i] / kBlockSize; ++block) {
        scheduled.new_block_ids.push_back(next_block++);
      }
      prompts.sequences.push_back(scheduled);
      ScheduledSequence decode;
      decode.id = i + 1;
      decode.kind = ChunkKind::kDecode;
      decode.num_computed_tokens = contexts[i];
      decode.num_tokens = 1;
      decode.samples = true;
      batch.sequences.push_back(decode);
    }
    for (const StepSequence& sequence : table_.apply(prompts)) {
      const auto row = static_cast<int32_t>(contexts.size() - sequence.chunk.id);
      sequence.state.output_token_ids.push_back(unknown_token(row));
    }
  }

  // Has the sequence preempted, and back in the step with all of its tokens.
  void come_back(SequenceId id) {
    ScheduledSequence& chunk = batch.sequences[id - 1];
    chunk.kind = ChunkKind::kPrefill;
    const auto num_tokens = static_cast<size_t>(chunk.num_computed_tokens + chunk.num_tokens);
    batch.removed.push_back(id);
    batch.added.push_back(
        seeded_sequence(id, std::vector<int32_t>(num_tokens, 5), SamplingParams()));
    for (int32_t block = 0; block < 40; ++block) chunk.new_block_ids.push_back(block);
  }
  // Says what the step before has sampled, sequence by sequence.
  void resolve(const std::vector<int32_t>& token_ids) {
    for (size_t i = 0; i < token_ids.size(); ++i) table_.resolve_token(i + 1, 0, token_ids[i]);
  }
  // The step; once for each object.
  std::vector<StepSequence> take_in() { return table_.apply(batch); }

  ScheduledBatch batch;

 private:
  SequenceTable table_;
};

StepShape largest_shape(int64_t num_seqs, int64_t max_model_len) {
  StepShape shape;
  shape.num_tokens = 2 * num_seqs;
  shape.num_seqs = num_seqs;
  shape.table_width = ceil_div(max_model_len, kBlockSize);
  shape.num_logits = num_seqs;
  shape.num_decode_items = num_seqs * ops::num_decode_items(max_model_len);
  shape.num_decode_rows = shape.num_decode_items;
  shape.adjusts_logits = true;
  shape.num_biases = kMaxStepBiases;
  return shape;
}

std::optional<StepShape> captured_shape(Decodes& step, const StepShape& largest) {
  const std::vector<StepSequence> sequences = step.take_in();
  return captured_shape(step_shape(sequences, sampling_places(sequences), largest), largest,
                        kBlockSize);
}

// A step's arrays in the host's memory, poisoned before it is filled.
class HostArrays {
 public:
  explicit HostArrays(const StepShape& shape) : memory_(StepInputs::bytes(shape), std::byte{0xb3}) {
    ArrayLayout layout(memory_.data());
    arrays = lay_out_step(layout, shape);
  }

  static constexpr auto kUntouched = static_cast<int32_t>(0xb3b3b3b3);
  StepArrays arrays;

 private:
  std::vector<std::byte> memory_;
};

template <typename T>
std::vector<T> values(const T* from, int64_t count) {
  return {from, from + count};
}

std::vector<std::vector<int32_t>> items(const StepArrays& arrays, int64_t count) {
  std::vector<std::vector<int32_t>> result;
  for (const ops::DecodeItem& item : values(arrays.decode_items, count)) {
    result.push_back({item.seq, item.chunk, item.first_row, item.context_len});
  }
  return result;
}

TEST(CapturedShape, PadsLittleAndNeverBelow) {
  for (int64_t n = 1; n <= 1024; ++n) {
    const int64_t rows = padded_rows(n);
    EXPECT_GE(rows, n);
    EXPECT_LE(rows, n < 8 ? 2 * n - 1 : n + std::max<int64_t>(7, (n - 1) / 2)) << n;
    EXPECT_EQ(padded_rows(rows), rows);
  }
}

TEST(CapturedShape, IsThereForEveryDecodeStepOfAnEngine) {
  for (const int64_t max_seqs : {1, 3, 10, 100, 513}) {
    for (const int64_t max_model_len : {64, 512, 5000}) {
      const StepShape largest = largest_shape(max_seqs, max_model_len);
      for (int64_t n = 1; n <= max_seqs; n = n < 12 ? n + 1 : n * 2) {
        const int64_t num_seqs = std::min(n, max_seqs);
        Decodes step(std::vector<int64_t>(static_cast<size_t>(num_seqs), max_model_len - 1));
        const auto shape = captured_shape(step, largest);
        ASSERT_TRUE(shape) << num_seqs << " of " << max_seqs << ", " << max_model_len;
        EXPECT_GE(shape->num_seqs, num_seqs);
        EXPECT_LE(shape->num_seqs, largest.num_seqs);
        EXPECT_LE(shape->num_tokens, largest.num_tokens);
        EXPECT_LE(shape->num_logits, largest.num_logits);
        EXPECT_LE(shape->table_width, largest.table_width);
        EXPECT_LE(shape->num_decode_items, largest.num_decode_items);
        EXPECT_GE(shape->table_width * kBlockSize, max_model_len);
        EXPECT_EQ(shape->num_decode_seqs, shape->num_seqs);
        EXPECT_EQ(shape->max_query_len, 1);
        EXPECT_EQ(shape->max_context_len, shape->table_width * kBlockSize);
      }
    }
  }
}

TEST(CapturedShape, IsTheSameForContextsThatShareAGraph) {
  const StepShape largest = largest_shape(8, 4096);
  Decodes shorter({3, 900});
  Decodes longer({700, 1000});
  EXPECT_EQ(captured_shape(shorter, largest), captured_shape(longer, largest));
}

TEST(CapturedShape, BeginsWithAThousandTokensWhateverABlockHolds) {
  const StepShape largest = largest_shape(8, 4096);
  Decodes step({40});
  const std::vector<StepSequence> sequences = step.take_in();
  const StepShape exact = step_shape(sequences, sampling_places(sequences), largest);
  for (const int block_size : {16, 32, 64, 256}) {
    const auto shape = captured_shape(exact, largest, block_size);
    EXPECT_EQ(shape->max_context_len, 1024) << block_size;
    EXPECT_EQ(shape->table_width, 1024 / block_size);
  }
}

TEST(CapturedShape, IsForDecodesOfKnownSequencesAlone) {
  const StepShape largest = largest_shape(8, 512);
  Decodes with_prompt({20, 30});
  with_prompt.batch.sequences[1].kind = ChunkKind::kPrefill;
  with_prompt.batch.sequences[1].num_computed_tokens = 20;
  with_prompt.batch.sequences[1].num_tokens = 10;
  EXPECT_FALSE(captured_shape(with_prompt, largest).has_value());

  // Of one token, as a prompt may be.
  Decodes with_new({20, 30});
  with_new.come_back(2);
  EXPECT_FALSE(captured_shape(with_new, largest).has_value());
}

// A step of an engine whose sequences have up to `most` drafts each.
StepShape largest_with_drafts(int64_t num_seqs, int64_t max_model_len, int64_t most) {
  StepShape largest = largest_shape(num_seqs, max_model_len);
  largest.num_logits = num_seqs * (1 + most);
  largest.num_tokens = 2 * largest.num_logits;
  largest.max_decode_queries = 1 + most;
  largest.num_decode_rows = largest.num_logits * ops::num_decode_items(max_model_len);
  return largest;
}

void add_drafts(ScheduledSequence& chunk, int64_t count) {
  chunk.kind = ChunkKind::kVerify;
  chunk.num_tokens = 1 + count;
  chunk.draft_token_ids.assign(static_cast<size_t>(count), 9);
  for (int32_t block = 0; block < 2; ++block) chunk.new_block_ids.push_back(200 + block);
}

TEST(CapturedShape, IsThereForEveryStepWithDrafts) {
  constexpr int64_t kMaxModelLen = 600;
  for (const int64_t max_seqs : {1, 3, 40}) {
    for (const int64_t most : {1, 4, 8, 16}) {
      const StepShape largest = largest_with_drafts(max_seqs, kMaxModelLen, most);
      for (int64_t num_drafting = 1; num_drafting <= max_seqs;
           num_drafting = 2 * num_drafting + 1) {
        Decodes step(std::vector<int64_t>(static_cast<size_t>(max_seqs), 510));
        for (int64_t i = max_seqs - num_drafting; i < max_seqs; ++i) {
          add_drafts(step.batch.sequences[static_cast<size_t>(i)], 1 + i % most);
        }
        const std::vector<StepSequence> sequences = step.take_in();
        const SamplingPlaces places = sampling_places(sequences);
        const StepShape exact = step_shape(sequences, places, largest);
        const auto shape = captured_shape(exact, largest, kBlockSize);
        ASSERT_TRUE(shape) << num_drafting << " of " << max_seqs << ", " << most;
        EXPECT_GT(shape->max_decode_queries, 1);
        EXPECT_GE(shape->max_decode_queries, exact.max_decode_queries);
        EXPECT_LE(shape->max_decode_queries, largest.max_decode_queries);
        EXPECT_GE(shape->num_tokens, exact.num_tokens);
        EXPECT_LE(shape->num_logits, largest.num_logits);
        EXPECT_LE(shape->num_tokens, largest.num_tokens);
        EXPECT_GE(shape->num_decode_rows, exact.num_decode_rows);
        EXPECT_LE(shape->num_decode_rows, largest.num_decode_rows);
        EXPECT_GE(shape->num_decode_items, exact.num_decode_items);
        EXPECT_EQ(shape->num_decode_seqs, shape->num_seqs);
        EXPECT_GE(shape->num_seqs, max_seqs);
      }
    }
  }
}

TEST(CapturedShape, PadsDraftsWithTokensOfNoSequence) {
  const StepShape largest = largest_with_drafts(4, 600, 4);
  Decodes step({40, 510, 17});
  step.resolve({6, 7, 8});
  add_drafts(step.batch.sequences[1], 3);
  add_drafts(step.batch.sequences[2], 1);
  const std::vector<StepSequence> sequences = step.take_in();
  const SamplingPlaces places = sampling_places(sequences);
  const StepShape shape =
      *captured_shape(step_shape(sequences, places, largest), largest, kBlockSize);
  ASSERT_EQ(shape.num_tokens, 8);
  ASSERT_EQ(shape.num_seqs, 4);
  EXPECT_EQ(shape.max_decode_queries, 4);
  const HostArrays memory(shape);
  const StepArrays& arrays = memory.arrays;
  fill_step(sequences, places, shape, arrays, kBlockSize);
  EXPECT_THAT(values(arrays.query_start, 5), ElementsAre(0, 1, 5, 7, 7));
  EXPECT_THAT(values(arrays.token_ids, 8), ElementsAre(6, 7, 9, 9, 9, 8, 9, 0));
  EXPECT_THAT(values(arrays.logits_rows, 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 0));
  EXPECT_EQ(arrays.slot_mapping[7], -1);
  EXPECT_THAT(values(arrays.context_lens, 4), ElementsAre(41, 514, 19, 0));
  EXPECT_EQ(*arrays.num_decode_items, 4);
  // Rows of the scratch: one, four for each of two chunks, two.
  EXPECT_EQ(items(arrays, 4), (std::vector<std::vector<int32_t>>{
                                  {1, 0, 1, 514}, {0, 0, 0, 41}, {2, 0, 9, 19}, {1, 1, 1, 514}}));
}

// Each row costs time in the kernel of a whole step.
TEST(CapturedShape, DoesNotPadAFewDrafts) {
  const StepShape largest = largest_with_drafts(4, 600, 8);
  for (int num_drafts = 1; num_drafts <= 7; ++num_drafts) {
    Decodes step({40});
    step.resolve({6});
    add_drafts(step.batch.sequences[0], static_cast<size_t>(num_drafts));
    const std::vector<StepSequence> sequences = step.take_in();
    const SamplingPlaces places = sampling_places(sequences);
    const auto shape = captured_shape(step_shape(sequences, places, largest), largest, kBlockSize);
    ASSERT_TRUE(shape.has_value());
    EXPECT_EQ(shape->num_tokens, num_drafts <= 4 ? num_drafts + 1 : 8);
    EXPECT_EQ(shape->num_logits, shape->num_tokens);
  }
}

TEST(CapturedShape, IsNotThereWhereChunksHaveNoRoom) {
  StepShape largest = largest_shape(4, 4096);
  largest.num_decode_items = 10;
  Decodes fits({2000, 3000});  // 4 and 6 chunks
  EXPECT_TRUE(captured_shape(fits, largest).has_value());
  Decodes does_not({2000, 3100});
  EXPECT_FALSE(captured_shape(does_not, largest).has_value());
}

TEST(FillStep, PadsWithWhatWritesAndReadsNothing) {
  Decodes step({40, 600, 17});
  const std::vector<StepSequence> sequences = step.take_in();
  const SamplingPlaces places = sampling_places(sequences);
  const StepShape largest = largest_shape(8, 1024);
  const StepShape shape =
      *captured_shape(step_shape(sequences, places, largest), largest, kBlockSize);
  ASSERT_EQ(shape.num_seqs, 4);
  const HostArrays memory(shape);
  const StepArrays& arrays = memory.arrays;
  fill_step(sequences, places, shape, arrays, kBlockSize);

  // The host knows none of the tokens: each is where the step before has sampled it.
  EXPECT_THAT(values(arrays.token_ids, 4), Each(0));
  EXPECT_THAT(values(arrays.token_sources, 4), ElementsAre(2, 1, 0, -1));
  EXPECT_THAT(values(arrays.positions, 4), ElementsAre(40, 600, 17, 0));
  EXPECT_THAT(values(arrays.slot_mapping, 4),
              ElementsAre(2 * 16 + 8, (3 + 37) * 16 + 8, (41 + 1) * 16 + 1, -1));
  EXPECT_THAT(values(arrays.query_start, 5), ElementsAre(0, 1, 2, 3, 3));
  EXPECT_THAT(values(arrays.context_lens, 4), ElementsAre(41, 601, 18, 0));
  EXPECT_THAT(values(arrays.logits_rows, 4), ElementsAre(0, 1, 2, 0));
  EXPECT_EQ(*arrays.num_decode_items, 4);
  // The whole chunk of the second, then the rest by size.
  EXPECT_EQ(items(arrays, 4), (std::vector<std::vector<int32_t>>{
                                  {1, 0, 1, 601}, {1, 1, 1, 601}, {0, 0, 0, 41}, {2, 0, 3, 18}}));
  EXPECT_EQ(arrays.temperature[3], 0.0f);
  EXPECT_EQ(arrays.top_k[3], 0);
  EXPECT_EQ(arrays.block_tables[shape.table_width], 3);
  EXPECT_EQ(arrays.block_tables[3 * shape.table_width], HostArrays::kUntouched);
}

// The example of core/forward_batch.h: A decodes a token that the step before has sampled in row 5,
// the prompt of B is new.
TEST(FillStep, PutsDecodesAndPromptsSideBySide) {
  SequenceTable table({kEos});
  SamplingParams params;
  params.temperature = 0.5;
  params.top_k = 40;
  params.top_p = 0.75;
  params.min_p = 0.125;
  ScheduledBatch before;
  before.added = {seeded_sequence(1, std::vector<int32_t>(19, 7), params)};
  before.sequences = {{.id = 1, .num_tokens = 19, .samples = true, .new_block_ids = {7, 4}}};
  table.apply(before).front().state.output_token_ids.push_back(unknown_token(5));
  ScheduledBatch batch;
  batch.added = {seeded_sequence(2, {10, 11, 12}, SamplingParams())};
  batch.sequences = {
      {.id = 1,
       .kind = ChunkKind::kDecode,
       .num_computed_tokens = 19,
       .num_tokens = 1,
       .samples = true,
       .new_block_ids = {}},
      {.id = 2, .num_computed_tokens = 0, .num_tokens = 3, .samples = true, .new_block_ids = {9}}};
  const std::vector<StepSequence> sequences = table.apply(batch);
  const SamplingPlaces places = sampling_places(sequences);
  const StepShape shape = step_shape(sequences, places, largest_shape(8, 512));

  StepShape expected;
  expected.num_tokens = 4;
  expected.num_seqs = 2;
  expected.table_width = 2;
  expected.num_logits = 2;
  expected.max_query_len = 3;
  expected.max_context_len = 20;
  expected.num_decode_seqs = 1;
  expected.num_decode_items = 1;
  expected.num_decode_rows = 1;
  EXPECT_EQ(shape, expected);

  const HostArrays memory(shape);
  const StepArrays& arrays = memory.arrays;
  fill_step(sequences, places, shape, arrays, kBlockSize);
  EXPECT_THAT(values(arrays.token_ids, 4), ElementsAre(0, 10, 11, 12));
  EXPECT_THAT(values(arrays.token_sources, 4), ElementsAre(5, -1, -1, -1));
  EXPECT_THAT(values(arrays.positions, 4), ElementsAre(19, 0, 1, 2));
  EXPECT_THAT(values(arrays.slot_mapping, 4),
              ElementsAre(4 * 16 + 3, 9 * 16, 9 * 16 + 1, 9 * 16 + 2));
  EXPECT_THAT(values(arrays.query_start, 3), ElementsAre(0, 1, 4));
  EXPECT_THAT(values(arrays.context_lens, 2), ElementsAre(20, 3));
  EXPECT_THAT(values(arrays.block_tables, 4), ElementsAre(7, 4, 9, HostArrays::kUntouched));
  EXPECT_THAT(values(arrays.logits_rows, 2), ElementsAre(0, 3));
  EXPECT_EQ(*arrays.num_decode_items, 1);
  EXPECT_EQ(items(arrays, 1), (std::vector<std::vector<int32_t>>{{0, 0, 0, 20}}));
  EXPECT_THAT(values(arrays.temperature, 2), ElementsAre(0.5f, 1.0f));
  EXPECT_THAT(values(arrays.top_k, 2), ElementsAre(40, 0));
  EXPECT_THAT(values(arrays.top_p, 2), ElementsAre(0.75f, 1.0f));
  EXPECT_THAT(values(arrays.min_p, 2), ElementsAre(0.125f, 0.0f));
  const ops::NoiseKey key = ops::noise_key(kSeed, 0, 20);
  EXPECT_THAT(values(arrays.noise_keys, 2), ElementsAre(key.low, key.high));
  // A step that adjusts nothing takes no room for it.
  EXPECT_EQ(arrays.repetition_penalty, nullptr);
  EXPECT_EQ(arrays.biases, nullptr);
}

// Rows of every kind, one of which does not sample.
std::vector<SamplingParams> adjusting_params() {
  std::vector<SamplingParams> params(5);
  params[1].repetition_penalty = 1.5;
  params[1].presence_penalty = -0.75;
  params[1].logit_bias = {{7, 2.5f}, {kEos, 9.0f}};
  params[1].min_tokens = 10;
  params[3].presence_penalty = 0.5;
  params[3].logprobs = 1;
  params[4].frequency_penalty = 0.25;
  return params;
}

TEST(SamplingPlaces, SaysWhereEachTokenIsSampled) {
  Decodes step({20, 20, 20, 20, 20}, adjusting_params());
  step.batch.sequences[2].samples = false;
  const SamplingPlaces places = sampling_places(step.take_in());
  EXPECT_THAT(places.rows, ElementsAre(SamplingPlace::kGpu, SamplingPlace::kGpuAdjusted,
                                       SamplingPlace::kHost, SamplingPlace::kGpuAdjusted));
  EXPECT_TRUE(places.adjusts_logits);
  EXPECT_EQ(places.num_biases, 3);
}

TEST(SamplingPlaces, LeavesBiasesWithoutRoomToTheHost) {
  std::vector<SamplingParams> params(3);
  for (int32_t id = 0; id < kMaxStepBiases - 2; ++id) params[0].logit_bias[id] = 1.0f;
  params[0].min_tokens = 5;  // masks the end of a sequence: one more
  params[1].logit_bias = {{1, 1.0f}, {2, 1.0f}};
  params[2].logit_bias = {{1, 1.0f}};
  Decodes step({20, 20, 20}, params);
  const SamplingPlaces places = sampling_places(step.take_in());
  EXPECT_THAT(places.rows, ElementsAre(SamplingPlace::kGpuAdjusted, SamplingPlace::kHost,
                                       SamplingPlace::kGpuAdjusted));
  EXPECT_EQ(places.num_biases, kMaxStepBiases);
}

TEST(SamplingPlaces, AMaskEndsWithItsTokens) {
  std::vector<SamplingParams> params(3);
  params[0].min_tokens = 2;  // of which it has one
  params[1].min_tokens = 1;
  params[2].min_tokens = 2;
  params[2].ignore_eos = true;  // nothing is masked
  Decodes step({20, 20, 20}, params);
  EXPECT_THAT(sampling_places(step.take_in()).rows,
              ElementsAre(SamplingPlace::kGpuAdjusted, SamplingPlace::kGpu, SamplingPlace::kGpu));
}

TEST(FillStep, FillsInAdjustments) {
  Decodes step({20, 21, 22, 23, 24}, adjusting_params());
  step.batch.sequences[2].samples = false;
  const std::vector<StepSequence> sequences = step.take_in();
  const SamplingPlaces places = sampling_places(sequences);
  StepShape shape = step_shape(sequences, places, largest_shape(8, 512));
  shape.num_logits = 6;  // 2 more than the step has
  const HostArrays memory(shape);
  const StepArrays& arrays = memory.arrays;
  fill_step(sequences, places, shape, arrays, kBlockSize);
  // Of the row that the host samples nothing is said.
  EXPECT_THAT(values(arrays.repetition_penalty, 6), ElementsAre(1, 1.5f, 1, 1, 1, 1));
  EXPECT_THAT(values(arrays.presence_penalty, 6), ElementsAre(0, -0.75f, 0, 0, 0, 0));
  EXPECT_THAT(values(arrays.frequency_penalty, 6), ElementsAre(0, 0, 0, 0.25f, 0, 0));
  EXPECT_THAT(values(arrays.row_seqs, 6), ElementsAre(0, 1, 0, 4, 0, 0));
  EXPECT_THAT(values(arrays.num_prompt_tokens, 6), ElementsAre(0, 21, 0, 24, 0, 0));
  EXPECT_THAT(values(arrays.history_lens, 6), ElementsAre(0, 22, 0, 25, 0, 0));
  EXPECT_THAT(values(arrays.bias_start, 7), ElementsAre(0, 0, 3, 3, 3, 3, 3));
  std::vector<std::pair<int32_t, float>> biases;
  for (const auto& [id, bias] : values(arrays.biases, shape.num_biases))
    biases.emplace_back(id, bias);
  EXPECT_THAT(biases, ElementsAre(Pair(kEos, 9.0f), Pair(7, 2.5f),
                                  Pair(kEos, -std::numeric_limits<float>::infinity())));
}

// Each draft has a row of its own, whose history ends with it.
TEST(FillStep, GivesEachDraftARow) {
  std::vector<SamplingParams> params(2);
  params[1].presence_penalty = 0.5;
  params[1].min_tokens = 3;
  Decodes step({20, 30}, params);
  step.resolve({7, 8});
  ScheduledSequence& chunk = step.batch.sequences[1];
  chunk.kind = ChunkKind::kVerify;
  chunk.num_tokens = 4;
  chunk.draft_token_ids = {41, 42, 43};
  chunk.new_block_ids = {9};
  const std::vector<StepSequence> sequences = step.take_in();
  const SamplingPlaces places = sampling_places(sequences);
  EXPECT_THAT(places.rows, ElementsAre(SamplingPlace::kGpu, SamplingPlace::kGpuAdjusted,
                                       SamplingPlace::kGpuAdjusted, SamplingPlace::kGpuAdjusted,
                                       SamplingPlace::kGpuAdjusted));
  // The end of a sequence may come as the fourth token of its output.
  EXPECT_EQ(places.num_biases, 2);
  const StepShape shape = step_shape(sequences, places, largest_shape(8, 512));
  EXPECT_EQ(shape.num_logits, 5);
  const HostArrays memory(shape);
  const StepArrays& arrays = memory.arrays;
  fill_step(sequences, places, shape, arrays, kBlockSize);
  EXPECT_THAT(values(arrays.token_ids, 5), ElementsAre(7, 8, 41, 42, 43));
  EXPECT_THAT(values(arrays.positions, 5), ElementsAre(20, 30, 31, 32, 33));
  EXPECT_THAT(values(arrays.context_lens, 2), ElementsAre(21, 34));
  EXPECT_THAT(values(arrays.logits_rows, 5), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(values(arrays.row_seqs, 5), ElementsAre(0, 1, 1, 1, 1));
  EXPECT_THAT(values(arrays.history_lens, 5), ElementsAre(0, 31, 32, 33, 34));
  EXPECT_THAT(values(arrays.bias_start, 6), ElementsAre(0, 0, 1, 2, 2, 2));
  for (int64_t row = 1; row < 5; ++row) {
    const ops::NoiseKey key = ops::noise_key(kSeed, 0, static_cast<uint64_t>(30 + row));
    EXPECT_THAT(values(arrays.noise_keys + 2 * row, 2), ElementsAre(key.low, key.high)) << row;
  }
}

TEST(FillStep, KeepsNewSequencesAndWhatHasNoRoomOutOfTheDecodePart) {
  {
    Decodes step({40, 600, 17});
    const std::vector<StepSequence> sequences = step.take_in();
    const SamplingPlaces places = sampling_places(sequences);
    StepShape largest = largest_shape(3, 1024);
    largest.num_decode_items = 2;  // one for the first, two for the second
    const StepShape shape = step_shape(sequences, places, largest);
    EXPECT_EQ(shape.num_decode_seqs, 1);
    EXPECT_EQ(shape.num_decode_items, 1);
    const HostArrays memory(shape);
    fill_step(sequences, places, shape, memory.arrays, kBlockSize);
    EXPECT_EQ(*memory.arrays.num_decode_items, 1);
  }
  Decodes step({40, 600, 17});
  step.come_back(3);
  const std::vector<StepSequence> sequences = step.take_in();
  const SamplingPlaces places = sampling_places(sequences);
  const StepShape shape = step_shape(sequences, places, largest_shape(3, 1024));
  EXPECT_EQ(shape.num_decode_seqs, 2);
  const HostArrays memory(shape);
  fill_step(sequences, places, shape, memory.arrays, kBlockSize);
  EXPECT_EQ(*memory.arrays.num_decode_items, 3);
}

// A graph reads its inputs at the addresses of the step that it was captured in.
TEST(StepArrays, LieTheSameWhateverTheNumberOfBiases) {
  StepShape none = largest_shape(4, 512);
  none.num_biases = 0;
  StepShape some = none;
  some.num_biases = 3;
  EXPECT_EQ(StepInputs::bytes(some) - StepInputs::bytes(none), kAlignment);
  std::vector<std::byte> memory(StepInputs::bytes(some));
  ArrayLayout first(memory.data());
  ArrayLayout second(memory.data());
  const StepArrays without = lay_out_step(first, none);
  const StepArrays with = lay_out_step(second, some);
  EXPECT_EQ(without.noise_keys, with.noise_keys);
  EXPECT_EQ(without.bias_start, with.bias_start);
  EXPECT_EQ(without.biases, with.biases);
}

}  // namespace
}  // namespace quire
