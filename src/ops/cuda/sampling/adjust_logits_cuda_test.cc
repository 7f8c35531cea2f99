// Biases and penalties on the device against those of the CPU: the same bits.
#include <bit>
#include <string>

#include "ops/cpu/sampling_cpu.h"
#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"

namespace quire::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kUntouched = 77.0f;  // between and behind the rows

struct Row {
  float repetition = 1.0f;
  float presence = 0.0f;
  float frequency = 0.0f;
  int32_t seq = 0;
  int32_t num_prompt_tokens = 0;
  std::vector<std::pair<int32_t, float>> biases = {};
  int32_t num_behind = 0;  // tokens of the sequence that are behind the row's history
};

class AdjustLogitsCudaTest : public CudaTest {
 protected:
  int32_t random_below(int64_t limit) {
    return static_cast<int32_t>(std::uniform_int_distribution<int64_t>(0, limit - 1)(random()));
  }

  // Tokens that come again and again, the first and the last of the vocabulary among them.
  std::vector<int32_t> random_history(int64_t length, int64_t vocab) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < length; ++i) {
      const int32_t id = random_below(vocab);
      ids.push_back(i % 3 == 0 ? id % 7 : i % 5 == 0 ? static_cast<int32_t>(vocab) - 1 : id);
    }
    return ids;
  }

  // Rows of logits, their sequences in blocks that lie anywhere in a cache, and what is expected.
  void check_rows(int64_t vocab, int32_t block_size,
                  const std::vector<std::vector<int32_t>>& histories, const std::vector<Row>& rows);
};

void adjust(const Row& row, const std::vector<int32_t>& history, std::span<float> logits) {
  // The CPU masks by a list of its own.
  std::vector<std::pair<int32_t, float>> biases;
  std::vector<int32_t> masked;
  for (const auto& [id, bias] : row.biases) {
    if (bias == -kInfinity) {
      masked.push_back(id);
    } else {
      biases.emplace_back(id, bias);
    }
  }
  SamplingRow params;
  params.repetition_penalty = row.repetition;
  params.presence_penalty = row.presence;
  params.frequency_penalty = row.frequency;
  params.prompt_ids = std::span(history).first(static_cast<size_t>(row.num_prompt_tokens));
  params.output_ids = std::span(history).subspan(static_cast<size_t>(row.num_prompt_tokens));
  params.logit_bias = biases;
  params.masked_ids = masked;
  RowSampler().adjust(logits, params);
}

void AdjustLogitsCudaTest::check_rows(int64_t vocab, int32_t block_size,
                                      const std::vector<std::vector<int32_t>>& histories,
                                      const std::vector<Row>& rows) {
  int64_t width = 1;
  for (const auto& history : histories) {
    width = std::max(width, static_cast<int64_t>(history.size()) / block_size + 1);
  }
  const auto num_blocks = static_cast<int64_t>(histories.size()) * width;
  std::vector<int32_t> free_blocks(static_cast<size_t>(num_blocks));
  for (size_t i = 0; i < free_blocks.size(); ++i) free_blocks[i] = static_cast<int32_t>(i);
  std::shuffle(free_blocks.begin(), free_blocks.end(), random());
  // Slots that hold no token of a sequence hold one that would count.
  std::vector<int32_t> cached(static_cast<size_t>(num_blocks * block_size), 0);
  std::vector<int32_t> tables;
  for (const auto& history : histories) {
    for (int64_t b = 0; b < width; ++b) {
      tables.push_back(free_blocks.back());
      free_blocks.pop_back();
      for (int64_t i = 0; i < block_size; ++i) {
        const int64_t t = b * block_size + i;
        if (t >= static_cast<int64_t>(history.size())) break;
        cached[static_cast<size_t>(tables.back() * block_size + i)] =
            history[static_cast<size_t>(t)];
      }
    }
  }

  const int64_t stride = vocab + 5;
  const auto num_rows = static_cast<int64_t>(rows.size());
  std::vector<float> logits(static_cast<size_t>(num_rows * stride), kUntouched);
  std::normal_distribution<float> normal(0.0f, 8.0f);
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t id = 0; id < vocab; ++id) {
      const float special = id % 31 == 3 ? kInfinity : id % 31 == 4 ? -kInfinity : -0.0f;
      logits[static_cast<size_t>(r * stride + id)] =
          id % 31 >= 3 && id % 31 <= 5 ? special : normal(random());
    }
  }
  std::vector<float> expected = logits;
  std::vector<float> repetition, presence, frequency;
  std::vector<int32_t> row_seqs, num_prompt_tokens, history_lens, bias_start{0};
  std::vector<TokenBias> biases;
  for (int64_t r = 0; r < num_rows; ++r) {
    const Row& row = rows[static_cast<size_t>(r)];
    std::vector<int32_t> history = histories[static_cast<size_t>(row.seq)];
    history.resize(history.size() - static_cast<size_t>(row.num_behind));
    history_lens.push_back(static_cast<int32_t>(history.size()));
    adjust(row, history, {expected.data() + r * stride, static_cast<size_t>(vocab)});
    repetition.push_back(row.repetition);
    presence.push_back(row.presence);
    frequency.push_back(row.frequency);
    row_seqs.push_back(row.seq);
    num_prompt_tokens.push_back(row.num_prompt_tokens);
    for (const auto& [id, bias] : row.biases) biases.push_back({id, bias});
    bias_start.push_back(static_cast<int32_t>(biases.size()));
  }

  DeviceArray<float> device_logits(logits), device_repetition(repetition),
      device_presence(presence), device_frequency(frequency);
  DeviceArray<int32_t> device_row_seqs(row_seqs), device_prompts(num_prompt_tokens),
      device_histories(history_lens), device_tables(tables), device_cached(cached),
      device_bias_start(bias_start);
  DeviceArray<TokenBias> device_biases(biases);
  cuda::adjust_logits(stream(), {.logits = device_logits.data(),
                                 .stride = stride,
                                 .rows = num_rows,
                                 .vocab = vocab,
                                 .repetition_penalty = device_repetition.data(),
                                 .presence_penalty = device_presence.data(),
                                 .frequency_penalty = device_frequency.data(),
                                 .row_seqs = device_row_seqs.data(),
                                 .num_prompt_tokens = device_prompts.data(),
                                 .history_lens = device_histories.data(),
                                 .block_tables = device_tables.data(),
                                 .table_width = width,
                                 .block_size = block_size,
                                 .cached_ids = device_cached.data(),
                                 .bias_start = device_bias_start.data(),
                                 .biases = device_biases.data()});
  synchronize();
  const std::vector<float> actual = device_logits.download();
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << "row " << static_cast<int64_t>(i) / stride << ", token "
        << static_cast<int64_t>(i) % stride;
  }
}

TEST_F(AdjustLogitsCudaTest, AgreesWithPlainLoops) {
  for (const int64_t vocab : {1, 97, 8191, 8192, 8193, 151'936}) {
    for (const int32_t block_size : {5, 16, 256}) {
      SCOPED_TRACE("vocabulary " + std::to_string(vocab) + ", blocks of " +
                   std::to_string(block_size));
      const std::vector<std::vector<int32_t>> histories = {
          random_history(1, vocab), random_history(257, vocab), random_history(5003, vocab)};
      const auto last = static_cast<int32_t>(vocab) - 1;
      std::vector<Row> rows;
      rows.push_back({.seq = 1, .num_prompt_tokens = 100});  // stays as it is
      rows.push_back({.repetition = 1.3f, .seq = 2, .num_prompt_tokens = 5003});
      rows.push_back({.repetition = 0.7f, .seq = 0, .num_prompt_tokens = 1});
      rows.push_back({.presence = 1.5f, .seq = 1, .num_prompt_tokens = 255});
      rows.push_back({.frequency = -0.3f, .seq = 2, .num_prompt_tokens = 1});
      rows.push_back({.repetition = 1.1f,
                      .presence = -0.4f,
                      .frequency = 0.21f,
                      .seq = 2,
                      .num_prompt_tokens = 2000,
                      .biases = {{last, 3.3f}}});
      rows.push_back({.presence = 0.5f, .seq = 1, .num_prompt_tokens = 257});  // no output yet
      for (const int32_t num_behind : {1, 4}) {
        rows.push_back({.presence = 0.5f,
                        .frequency = 0.4f,
                        .seq = 2,
                        .num_prompt_tokens = 4000,
                        .num_behind = num_behind});
      }
      Row biased{.seq = 0, .num_prompt_tokens = 1};
      for (int32_t id = 0; id < std::min<int32_t>(last, 700); ++id) {
        biased.biases.emplace_back(id, 0.37f * static_cast<float>(id % 11) - 2.0f);
      }
      biased.biases.emplace_back(last, -kInfinity);
      biased.biases.emplace_back(last, -kInfinity);
      rows.push_back(biased);
      check_rows(vocab, block_size, histories, rows);
    }
  }
}

TEST_F(AdjustLogitsCudaTest, AMaskComesBeforeAllElse) {
  // Token 3 has a logit of +infinity, and a bias of its own.
  Row row{.repetition = 1.2f, .presence = 1.0f, .seq = 0, .num_prompt_tokens = 2};
  row.biases = {{3, -kInfinity}, {3, 4.5f}, {8, 1.5f}, {3, -kInfinity}};
  check_rows(10, 16, {{3, 4, 3, 5}}, {row});
}

TEST_F(AdjustLogitsCudaTest, NothingToDo) {
  cuda::adjust_logits(stream(), {});
  synchronize();
}

}  // namespace
}  // namespace quire::ops
