#include "ops/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "ops/sampling_noise.h"
#include "ops/sampling_test_util.h"

namespace quire::ops {
namespace {

using sampling_test::Logits;
using sampling_test::RandomRow;
using sampling_test::RowMaker;
using sampling_test::sample_one;
using sampling_test::sample_rows;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingRow greedy() {
  SamplingRow row;
  row.temperature = 0;
  return row;
}

// The definition, step by step, with a full sort and in double precision. First what comes before
// the temperature, which is the same for every choice from these logits.
struct ReferenceLogits {
  std::vector<double> logits;
  std::vector<int32_t> order;  // ids from the most likely
};

ReferenceLogits reference_logits(const Logits& raw, const SamplingRow& row) {
  ReferenceLogits result;
  std::vector<double>& logits = result.logits;
  logits.assign(raw.begin(), raw.end());
  for (const auto& [id, bias] : row.logit_bias) logits[static_cast<size_t>(id)] += bias;
  for (const int32_t id : row.masked_ids) logits[static_cast<size_t>(id)] = -kInfinity;
  std::map<int32_t, int> num_generated;
  for (const int32_t id : row.output_ids) ++num_generated[id];
  std::map<int32_t, int> seen = num_generated;
  for (const int32_t id : row.prompt_ids) ++seen[id];
  for (const auto& [id, count] : seen) {
    double& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  }
  for (const auto& [id, count] : num_generated) {
    logits[static_cast<size_t>(id)] -= row.frequency_penalty * count + row.presence_penalty;
  }
  result.order.resize(logits.size());
  std::iota(result.order.begin(), result.order.end(), 0);
  std::ranges::stable_sort(result.order, std::greater<>(),
                           [&](int32_t id) { return logits[static_cast<size_t>(id)]; });
  return result;
}

int32_t reference_choice(const ReferenceLogits& reference, const SamplingRow& row) {
  std::vector<int32_t> order = reference.order;
  const auto logit = [&](int32_t id) { return reference.logits[static_cast<size_t>(id)]; };
  if (row.temperature == 0) return order[0];
  const double max = logit(order[0]);
  const auto log_weight = [&](int32_t id) { return (logit(id) - max) / row.temperature; };
  if (row.min_p > 0) {
    std::erase_if(order, [&](int32_t id) { return log_weight(id) < std::log(row.min_p) - 1e-6; });
  }
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < order.size()) {
    const double lowest = log_weight(order[static_cast<size_t>(row.top_k) - 1]);
    std::erase_if(order, [&](int32_t id) { return log_weight(id) < lowest; });
  }
  if (row.top_p < 1) {
    double total = 0;
    for (const int32_t id : order) total += std::exp(log_weight(id));
    double sum = 0;
    size_t kept = 0;
    while (kept < order.size() && sum < static_cast<double>(row.top_p) * total) {
      sum += std::exp(log_weight(order[kept++]));
    }
    order.resize(kept);
  }
  const NoiseKey key = noise_key(row.seed, row.index, row.position);
  return std::ranges::max(order, {}, [&](int32_t id) {
    return log_weight(id) + gumbel_noise(noise_bits(key, static_cast<uint32_t>(id)));
  });
}

int32_t reference_sample(const Logits& raw, const SamplingRow& row) {
  return reference_choice(reference_logits(raw, row), row);
}

TEST(SamplingTest, AgreesWithTheReferenceOnRandomRows) {
  RowMaker maker(1);
  for (int i = 0; i < 4000; ++i) {
    RandomRow r;
    maker.fill(r, i % 40 == 0 ? maker.pick(1000, 9000) : maker.pick(1, 300));
    ASSERT_EQ(sample_one(r.logits, r.row), reference_sample(r.logits, r.row))
        << "row " << i << " of " << r.logits.size() << ": temperature " << r.row.temperature
        << " top_k " << r.row.top_k << " top_p " << r.row.top_p << " min_p " << r.row.min_p;
  }
}

TEST(SamplingTest, TokensThatAreNotAllowedAreNeverSampled) {
  RowMaker maker(9);
  ThreadPool pool(1);
  Stream stream(pool);
  for (int i = 0; i < 1000; ++i) {
    RandomRow r;
    maker.fill(r, maker.pick(1, 300));
    std::vector<uint32_t> allowed((r.logits.size() + 31) / 32);
    Logits forbidden = r.logits;
    for (size_t id = 0; id < r.logits.size(); ++id) {
      if (id == 0 || maker.pick(1, 3) == 1) {
        allowed[id / 32] |= uint32_t{1} << (id % 32);
      } else {
        forbidden[id] = -kInfinity;
      }
    }
    const int32_t expected = sample_one(forbidden, r.row);
    r.row.allowed = allowed;
    r.row.num_logprobs = 2;
    Logits logits = r.logits;
    const Tensor tensor(logits.data(), DType::kFloat32, {1, static_cast<int64_t>(logits.size())});
    std::vector<SampledToken> sampled(1);
    sample(stream, tensor, std::span(&r.row, 1), sampled);
    ASSERT_EQ(sampled[0].token_id, expected) << i;
    EXPECT_EQ(logits, r.logits);
    std::vector<std::vector<TokenLogprob>> raw(1);
    token_logprobs(stream, tensor, std::span(&expected, 1), 2, raw);
    ASSERT_EQ(sampled[0].logprobs.size(), raw[0].size());
    for (size_t j = 0; j < raw[0].size(); ++j) {
      EXPECT_EQ(sampled[0].logprobs[j].token_id, raw[0][j].token_id);
      EXPECT_EQ(sampled[0].logprobs[j].logprob, raw[0][j].logprob);
      EXPECT_EQ(sampled[0].logprobs[j].rank, raw[0][j].rank);
    }
  }
}

TEST(SamplingTest, WhereNothingIsAllowedThereIsNoToken) {
  const std::vector<uint32_t> none(1);
  SamplingRow row;
  row.allowed = none;
  EXPECT_EQ(sample_one({1, 2, 3}, row), kNoToken);
}

TEST(SamplingTest, AgreesWithTheReferenceOnARealVocabulary) {
  RowMaker maker(2);
  const Logits logits = maker.logits(151936);
  const ReferenceLogits reference = reference_logits(logits, {});
  for (const float temperature : {0.0f, 0.6f, 1.0f, 5.0f}) {
    for (const int top_k : {0, 20, 5000}) {
      for (const float top_p : {0.3f, 0.95f, 1.0f}) {
        SamplingRow row;
        row.temperature = temperature;
        row.top_k = top_k;
        row.top_p = top_p;
        row.seed = 17;
        EXPECT_EQ(sample_one(logits, row), reference_choice(reference, row))
            << temperature << " " << top_k << " " << top_p;
      }
    }
  }
}

// Where all tokens are alike, top_p keeps the lowest ids.
TEST(SamplingTest, AgreesWithTheReferenceWhereAllAreAlike) {
  const Logits logits(5000, 1.5f);
  for (const float top_p : {0.001f, 0.5f, 0.99f, 1.0f}) {
    for (uint64_t position = 0; position < 20; ++position) {
      SamplingRow row;
      row.top_p = top_p;
      row.position = position;
      EXPECT_EQ(sample_one(logits, row), reference_sample(logits, row));
    }
  }
}

TEST(SamplingTest, GreedyTakesTheLowestIdOnATie) {
  Logits logits(300, 1.0f);
  logits[70] = logits[71] = logits[290] = 4.0f;
  EXPECT_EQ(sample_one(logits, greedy()), 70);
}

TEST(SamplingTest, TokensAsLikelyAsTheKthStay) {
  const Logits logits = {3, 5, 1, 3, 3, 0};
  std::map<int32_t, int> counts;
  SamplingRow row;
  row.top_k = 2;
  for (row.position = 0; row.position < 500; ++row.position) ++counts[sample_one(logits, row)];
  EXPECT_EQ(counts.size(), 4u);
  EXPECT_EQ(counts.count(2) + counts.count(5), 0u);
}

TEST(SamplingTest, PenaltiesAreThoseOfVllm) {
  SamplingRow row = greedy();
  const std::vector<int32_t> prompt = {0, 1, 1}, output = {2, 2, 3};
  row.prompt_ids = prompt;
  row.output_ids = output;
  row.repetition_penalty = 2;
  // Positive logits of seen tokens are halved once, negative ones doubled.
  EXPECT_EQ(sample_one({8, 8, 8, 8, 4.5f}, row), 4);
  EXPECT_EQ(sample_one({8, 8, 8, 8, 3.5f}, row), 0);
  EXPECT_EQ(sample_one({-1, -1, -1, -1, -1.5f}, row), 4);
  // Frequency and presence count only generated tokens.
  row.repetition_penalty = 1;
  row.frequency_penalty = 1;
  EXPECT_EQ(sample_one({-9, -9, 5, 4.1f, 2.9f}, row), 3);
  EXPECT_EQ(sample_one({-9, -9, 5, 3.9f, 2.9f}, row), 2);
  row.frequency_penalty = 0;
  row.presence_penalty = 1.5f;
  EXPECT_EQ(sample_one({3.4f, -9, 5, 4, -9}, row), 2);
  EXPECT_EQ(sample_one({3.6f, -9, 5, 4, -9}, row), 0);
}

TEST(SamplingTest, BiasAndMaskComeFirst) {
  SamplingRow row = greedy();
  const std::vector<std::pair<int32_t, float>> bias = {{1, 100.0f}, {2, 50.0f}};
  const std::vector<int32_t> masked = {1};
  row.logit_bias = bias;
  EXPECT_EQ(sample_one({1, 0, 0}, row), 1);
  row.masked_ids = masked;
  EXPECT_EQ(sample_one({1, 0, 0}, row), 2);
}

TEST(SamplingTest, LogitsThatAreNoNumbers) {
  SamplingRow row;
  for (const float temperature : {0.0f, 1.0f}) {
    for (const int top_k : {0, 2}) {
      for (const float top_p : {0.5f, 1.0f}) {
        row.temperature = temperature;
        row.top_k = top_k;
        row.top_p = top_p;
        row.num_logprobs = 2;
        EXPECT_EQ(sample_one({kNan, kNan, kNan}, row), kNoToken);
        EXPECT_EQ(sample_one({kNan, -kInfinity, -kInfinity}, row), kNoToken);
        EXPECT_EQ(sample_one({kNan, -kInfinity, -50}, row), 2);
        EXPECT_EQ(sample_one({1, kInfinity, kNan, kInfinity}, row), kNoToken);
      }
    }
  }
  EXPECT_TRUE(sample_rows({{kNan, kNan}}, {row})[0].logprobs.empty());
}

TEST(SamplingTest, ExtremeTemperaturesAreSafe) {
  const float most = std::numeric_limits<float>::max();
  for (const float temperature : {1e-45f, 1e-38f, 1e-10f, 100.0f}) {
    SamplingRow row;
    row.temperature = temperature;
    for (const float top_p : {0.5f, 1.0f}) {
      row.top_p = top_p;
      EXPECT_EQ(sample_one({-most, 0, most}, row), 2);
      if (temperature < 1) {
        EXPECT_EQ(sample_one({1.0f, 1.001f, 0.9f}, row), 1);
      }
    }
  }
}

TEST(SamplingTest, RowsAndThreadsDoNotMeet) {
  RowMaker maker(3);
  const int width = 700;
  std::vector<RandomRow> made(33);
  std::vector<Logits> logits;
  std::vector<SamplingRow> rows;
  for (RandomRow& r : made) {
    maker.fill(r, width);
    r.row.num_logprobs = maker.pick(-1, 5);
    logits.push_back(r.logits);
    rows.push_back(r.row);
  }
  const auto together = sample_rows(logits, rows, 3);
  for (size_t i = 0; i < made.size(); ++i) {
    const SampledToken alone = sample_rows({made[i].logits}, {made[i].row})[0];
    EXPECT_EQ(together[i].token_id, alone.token_id);
    ASSERT_EQ(together[i].logprobs.size(), alone.logprobs.size());
    for (size_t j = 0; j < alone.logprobs.size(); ++j) {
      EXPECT_EQ(together[i].logprobs[j].token_id, alone.logprobs[j].token_id);
      EXPECT_EQ(together[i].logprobs[j].logprob, alone.logprobs[j].logprob);
      EXPECT_EQ(together[i].logprobs[j].rank, alone.logprobs[j].rank);
    }
  }
}

TEST(SamplingTest, NothingToSampleIsNoWork) {
  ThreadPool pool(1);
  Stream stream(pool);
  sample(stream, Tensor(), {}, {});
  token_logprobs(stream, Tensor(), {}, 0, {});
}

TEST(SamplingTest, MisuseAborts) {
  SamplingRow row;
  const std::vector<int32_t> outside = {3};
  row.masked_ids = outside;
  EXPECT_DEATH(sample_one({1, 2, 3}, row), "masked id is in the vocabulary");
  EXPECT_DEATH(sample_rows({{1, 2}}, {row, row}), "");
}

}  // namespace
}  // namespace quire::ops
