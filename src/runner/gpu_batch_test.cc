#include "runner/gpu_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/cuda/decode_items.h"
#include "runner/batch_builder.h"

namespace quire {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr int kBlockSize = 16;
constexpr int32_t kEos = 2;

// A table of sequences that hold `contexts` tokens, and the step that decodes each one's next.
class Decodes {
 public:
  // Parameters are the defaults for sequences that `params` does not reach.
  explicit Decodes(const std::vector<int64_t>& contexts,
                   const std::vector<SamplingParams>& params = {})
      : table_({kEos}), builder_(kBlockSize) {
    ScheduledBatch prompts;
    int32_t next_block = 0;
    for (size_t i = 0; i < contexts.size(); ++i) {
      NewSequence added;
      added.id = i + 1;
      Request request;
      request.prompt_token_ids.assign(static_cast<size_t>(contexts[i]), 5);
      if (i < params.size()) request.params = params[i];
      added.request = std::make_shared<const Request>(std::move(request));
      prompts.added.push_back(added);
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
    table_.apply(prompts);
    for (size_t i = 0; i < contexts.size(); ++i) {
      table_.append_token(i + 1, kUnknownToken);
      last_rows[i + 1] = static_cast<int32_t>(contexts.size() - 1 - i);
    }
  }

  ForwardBatch build() {
    table_.apply(batch);
    return builder_.build(batch, table_);
  }
  const SequenceTable& table() const { return table_; }

  ScheduledBatch batch;
  std::map<SequenceId, int32_t> last_rows;

 private:
  SequenceTable table_;
  BatchBuilder builder_;
};

StepShape largest_shape(int64_t num_seqs, int64_t max_model_len) {
  return {.num_tokens = 2 * num_seqs,
          .num_seqs = num_seqs,
          .table_width = (max_model_len + kBlockSize - 1) / kBlockSize,
          .num_logits = num_seqs,
          .num_decode_items = num_seqs * ops::num_decode_items(max_model_len),
          .adjusts_logits = true};
}

// A step's arrays in the host's memory.
class HostArrays {
 public:
  explicit HostArrays(const StepShape& shape)
      : ints_(static_cast<size_t>(4 * shape.num_tokens + 2 * shape.num_seqs + 1 +
                                  shape.num_seqs * shape.table_width + 7 * shape.num_logits + 2 +
                                  kMaxStepBiases),
              kUntouched),
        slots_(static_cast<size_t>(shape.num_tokens), kUntouched),
        items_(static_cast<size_t>(shape.num_decode_items),
               {kUntouched, kUntouched, kUntouched, kUntouched}),
        floats_(static_cast<size_t>(6 * shape.num_logits + kMaxStepBiases), -7.0f) {
    int32_t* next = ints_.data();
    const auto take = [&next](int64_t count) { return std::exchange(next, next + count); };
    arrays = {.token_ids = take(shape.num_tokens),
              .token_sources = take(shape.num_tokens),
              .positions = take(shape.num_tokens),
              .slot_mapping = slots_.data(),
              .query_start = take(shape.num_seqs + 1),
              .context_lens = take(shape.num_seqs),
              .block_tables = take(shape.num_seqs * shape.table_width),
              .logits_rows = take(shape.num_logits),
              .decode_items = items_.data(),
              .num_decode_items = take(1),
              .temperature = floats_.data(),
              .top_k = take(shape.num_logits),
              .top_p = floats_.data() + shape.num_logits,
              .min_p = floats_.data() + 2 * shape.num_logits,
              .noise_keys = reinterpret_cast<uint32_t*>(take(2 * shape.num_logits)),
              .repetition_penalty = floats_.data() + 3 * shape.num_logits,
              .presence_penalty = floats_.data() + 4 * shape.num_logits,
              .frequency_penalty = floats_.data() + 5 * shape.num_logits,
              .row_seqs = take(shape.num_logits),
              .num_prompt_tokens = take(shape.num_logits),
              .bias_start = take(shape.num_logits + 1),
              .bias_ids = take(kMaxStepBiases),
              .biases = floats_.data() + 6 * shape.num_logits};
  }

  static constexpr int32_t kUntouched = -77;
  StepArrays arrays;

 private:
  std::vector<int32_t> ints_;
  std::vector<int64_t> slots_;
  std::vector<ops::DecodeItem> items_;
  std::vector<float> floats_;
};

template <typename T>
std::vector<T> values(const T* from, int64_t count) {
  return {from, from + count};
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
        const auto shape = captured_shape(step.batch, step.build(), largest, kBlockSize);
        ASSERT_TRUE(shape) << num_seqs << " of " << max_seqs << ", " << max_model_len;
        EXPECT_GE(shape->num_seqs, num_seqs);
        EXPECT_LE(shape->num_seqs, largest.num_seqs);
        EXPECT_LE(shape->num_tokens, largest.num_tokens);
        EXPECT_LE(shape->num_logits, largest.num_logits);
        EXPECT_LE(shape->table_width, largest.table_width);
        EXPECT_LE(shape->num_decode_items, largest.num_decode_items);
        EXPECT_GE(shape->table_width * kBlockSize, max_model_len);
      }
    }
  }
}

TEST(CapturedShape, IsTheSameForContextsThatShareAGraph) {
  const StepShape largest = largest_shape(8, 4096);
  Decodes shorter({3, 900});
  Decodes longer({700, 1000});
  EXPECT_EQ(captured_shape(shorter.batch, shorter.build(), largest, kBlockSize),
            captured_shape(longer.batch, longer.build(), largest, kBlockSize));
}

TEST(CapturedShape, IsForDecodesOfKnownSequencesAlone) {
  const StepShape largest = largest_shape(8, 512);
  Decodes with_prompt({20, 30});
  with_prompt.batch.sequences[1].kind = ChunkKind::kPrefill;
  with_prompt.batch.sequences[1].num_computed_tokens = 20;
  with_prompt.batch.sequences[1].num_tokens = 10;
  EXPECT_FALSE(
      captured_shape(with_prompt.batch, with_prompt.build(), largest, kBlockSize).has_value());

  // Of one token, as a prompt may be.
  Decodes with_new({20, 30});
  const ForwardBatch host = with_new.build();
  with_new.batch.sequences[1].kind = ChunkKind::kPrefill;
  EXPECT_FALSE(captured_shape(with_new.batch, host, largest, kBlockSize).has_value());
}

TEST(CapturedShape, IsNotThereWhereChunksHaveNoRoom) {
  StepShape largest = largest_shape(4, 4096);
  largest.num_decode_items = 10;
  Decodes fits({2000, 3000});  // 4 and 6 chunks
  EXPECT_TRUE(captured_shape(fits.batch, fits.build(), largest, kBlockSize).has_value());
  Decodes does_not({2000, 3100});
  EXPECT_FALSE(captured_shape(does_not.batch, does_not.build(), largest, kBlockSize).has_value());
}

TEST(FillStep, PadsWithWhatWritesAndReadsNothing) {
  Decodes step({40, 600, 17});
  const ForwardBatch host = step.build();
  const StepShape shape = *captured_shape(step.batch, host, largest_shape(8, 1024), kBlockSize);
  ASSERT_EQ(shape.num_seqs, 4);
  HostArrays memory(shape);
  const StepArrays& arrays = memory.arrays;
  EXPECT_EQ(fill_step(step.batch, host, step.table(), step.last_rows, shape, arrays), 3);

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
  std::vector<std::vector<int32_t>> items;
  for (const ops::DecodeItem& item : values(arrays.decode_items, 4)) {
    items.push_back({item.seq, item.chunk, item.first_row, item.context_len});
  }
  EXPECT_EQ(items, (std::vector<std::vector<int32_t>>{
                       {1, 0, 1, 601}, {1, 1, 1, 601}, {0, 0, 0, 41}, {2, 0, 3, 18}}));
  EXPECT_EQ(arrays.temperature[3], 0.0f);
  EXPECT_EQ(arrays.top_k[3], 0);
  EXPECT_EQ(arrays.block_tables[shape.table_width], 3);
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
  EXPECT_THAT(sampling_places(step.batch, step.table()),
              ElementsAre(SamplingPlace::kGpu, SamplingPlace::kGpuAdjusted, SamplingPlace::kHost,
                          SamplingPlace::kGpuAdjusted));
}

TEST(SamplingPlaces, LeavesBiasesWithoutRoomToTheHost) {
  std::vector<SamplingParams> params(3);
  for (int32_t id = 0; id < kMaxStepBiases - 2; ++id) params[0].logit_bias[id] = 1.0f;
  params[0].min_tokens = 5;  // masks the end of a sequence: one more
  params[1].logit_bias = {{1, 1.0f}, {2, 1.0f}};
  params[2].logit_bias = {{1, 1.0f}};
  const Decodes step({20, 20, 20}, params);
  EXPECT_THAT(
      sampling_places(step.batch, step.table()),
      ElementsAre(SamplingPlace::kGpuAdjusted, SamplingPlace::kHost, SamplingPlace::kGpuAdjusted));
}

TEST(SamplingPlaces, AMaskEndsWithItsTokens) {
  std::vector<SamplingParams> params(3);
  params[0].min_tokens = 2;  // of which it has one
  params[1].min_tokens = 1;
  params[2].min_tokens = 2;
  params[2].ignore_eos = true;  // nothing is masked
  const Decodes step({20, 20, 20}, params);
  EXPECT_THAT(sampling_places(step.batch, step.table()),
              ElementsAre(SamplingPlace::kGpuAdjusted, SamplingPlace::kGpu, SamplingPlace::kGpu));
}

TEST(FillStep, FillsInAdjustments) {
  Decodes step({20, 21, 22, 23, 24}, adjusting_params());
  step.batch.sequences[2].samples = false;
  const ForwardBatch host = step.build();
  const StepShape shape{.num_tokens = 5,
                        .num_seqs = 5,
                        .table_width = host.block_tables.dim(1),
                        .num_logits = 6,
                        .num_decode_items = 5,
                        .adjusts_logits = true};
  HostArrays memory(shape);
  const StepArrays& arrays = memory.arrays;
  fill_step(step.batch, host, step.table(), step.last_rows, shape, arrays);
  // Of the row that the host samples nothing is said.
  EXPECT_THAT(values(arrays.repetition_penalty, 6), ElementsAre(1, 1.5f, 1, 1, 1, 1));
  EXPECT_THAT(values(arrays.presence_penalty, 6), ElementsAre(0, -0.75f, 0, 0, 0, 0));
  EXPECT_THAT(values(arrays.frequency_penalty, 6), ElementsAre(0, 0, 0, 0.25f, 0, 0));
  EXPECT_THAT(values(arrays.row_seqs, 6), ElementsAre(0, 1, 0, 4, 0, 0));
  EXPECT_THAT(values(arrays.num_prompt_tokens, 6), ElementsAre(0, 21, 0, 24, 0, 0));
  EXPECT_THAT(values(arrays.bias_start, 7), ElementsAre(0, 0, 3, 3, 3, 3, 3));
  EXPECT_THAT(values(arrays.bias_ids, 3), ElementsAre(kEos, 7, kEos));
  EXPECT_THAT(values(arrays.biases, 3),
              ElementsAre(9.0f, 2.5f, -std::numeric_limits<float>::infinity()));
}

TEST(FillStep, KeepsNewSequencesAndWhatHasNoRoomOutOfTheDecodePart) {
  Decodes step({40, 600, 17});
  const ForwardBatch host = step.build();
  StepShape shape{.num_tokens = 3,
                  .num_seqs = 3,
                  .table_width = host.block_tables.dim(1),
                  .num_logits = 3,
                  .num_decode_items = 2};
  {
    HostArrays memory(shape);
    EXPECT_EQ(fill_step(step.batch, host, step.table(), step.last_rows, shape, memory.arrays), 1);
    EXPECT_EQ(*memory.arrays.num_decode_items, 1);
    EXPECT_EQ(memory.arrays.decode_items[1].seq, HostArrays::kUntouched);
  }
  shape.num_decode_items = 100;
  step.batch.sequences[2].kind = ChunkKind::kPrefill;
  HostArrays memory(shape);
  EXPECT_EQ(fill_step(step.batch, host, step.table(), step.last_rows, shape, memory.arrays), 2);
  EXPECT_EQ(*memory.arrays.num_decode_items, 3);
}

}  // namespace
}  // namespace quire
