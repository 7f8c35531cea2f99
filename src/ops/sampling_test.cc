#include "ops/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "ops/sampling_noise.h"

namespace quire::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Logits = std::vector<float>;

std::vector<SampledToken> sample_rows(std::vector<Logits> logits,
                                      const std::vector<SamplingRow>& rows, int num_threads = 1) {
  ThreadPool pool(num_threads);
  Stream stream(pool);
  const auto width = static_cast<int64_t>(logits[0].size());
  Logits all;
  for (const Logits& row : logits) all.insert(all.end(), row.begin(), row.end());
  const Tensor tensor(all.data(), DType::kFloat32, {static_cast<int64_t>(rows.size()), width});
  std::vector<SampledToken> out(rows.size());
  sample(stream, tensor, rows, out);
  return out;
}

int32_t sample_one(const Logits& logits, const SamplingRow& row) {
  return sample_rows({logits}, {row})[0].token_id;
}

SamplingRow greedy() {
  SamplingRow row;
  row.temperature = 0;
  return row;
}

// The definition, step by step, with a full sort and in double precision.
int32_t reference_sample(const Logits& raw, const SamplingRow& row) {
  std::vector<double> logits(raw.begin(), raw.end());
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
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](int32_t id) { return logits[static_cast<size_t>(id)]; });
  const double max = logits[static_cast<size_t>(order[0])];
  if (row.temperature == 0) return order[0];
  const auto log_weight = [&](int32_t id) {
    return (logits[static_cast<size_t>(id)] - max) / row.temperature;
  };
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

struct RandomRow {
  Logits logits;
  SamplingRow row;
  std::vector<int32_t> prompt_ids, output_ids, masked_ids;
  std::vector<std::pair<int32_t, float>> logit_bias;
};

class RowMaker {
 public:
  explicit RowMaker(uint64_t seed) : engine_(seed) {}

  int pick(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  float real(float low, float high) {
    return low + (high - low) * static_cast<float>(engine_() >> 40) * 0x1p-24f;
  }

  Logits logits(int width) {
    std::normal_distribution<float> normal(0, real(0.1f, 6));
    Logits result(static_cast<size_t>(width));
    const bool rounded = pick(1, 4) == 1;  // for ties
    for (float& logit : result) {
      logit = normal(engine_);
      if (rounded) logit = std::round(logit);
      if (pick(1, 50) == 1) logit = -kInfinity;
    }
    result[0] = 0;  // not all at -infinity
    return result;
  }

  std::vector<int32_t> ids(int width) {
    std::vector<int32_t> result(static_cast<size_t>(pick(0, 20)));
    for (int32_t& id : result) id = pick(0, width - 1);
    return result;
  }

  void fill(RandomRow& r, int width) {
    r.logits = logits(width);
    SamplingRow& row = r.row;
    if (pick(1, 8) == 1) row.temperature = 0;
    if (pick(1, 3) == 1) row.temperature = real(0.1f, 3);
    if (pick(1, 3) == 1) row.top_k = pick(-1, width + 2);
    if (pick(1, 3) == 1) row.top_k = pick(1, 5);
    if (pick(1, 2) == 1) row.top_p = real(0.01f, 0.999f);
    if (pick(1, 4) == 1) row.min_p = real(0.001f, 0.9f);
    row.seed = engine_();
    row.index = static_cast<uint32_t>(pick(0, 3));
    row.position = static_cast<uint64_t>(pick(0, 1000));
    if (pick(1, 4) == 1) {
      r.prompt_ids = ids(width);
      r.output_ids = ids(width);
      row.repetition_penalty = real(0.5f, 2);
      row.presence_penalty = real(-2, 2);
      row.frequency_penalty = real(-2, 2);
    }
    if (pick(1, 4) == 1) {
      r.masked_ids = ids(width);
      std::erase(r.masked_ids, 0);
      r.logit_bias = {{pick(0, width - 1), real(-10, 10)}};
    }
    row.prompt_ids = r.prompt_ids;
    row.output_ids = r.output_ids;
    row.masked_ids = r.masked_ids;
    row.logit_bias = r.logit_bias;
  }

 private:
  std::mt19937_64 engine_;
};

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
  for (const float temperature : {0.0f, 0.6f, 1.0f, 5.0f}) {
    for (const int top_k : {0, 20, 5000}) {
      for (const float top_p : {0.3f, 0.95f, 1.0f}) {
        SamplingRow row;
        row.temperature = temperature;
        row.top_k = top_k;
        row.top_p = top_p;
        row.seed = 17;
        EXPECT_EQ(sample_one(logits, row), reference_sample(logits, row))
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

TEST(SamplingTest, LogprobsOfLogitsThatAreNoNumbers) {
  const auto logprobs_of = [](Logits logits, int32_t token_id) {
    ThreadPool pool(1);
    Stream stream(pool);
    std::vector<TokenLogprob> found;
    const auto width = static_cast<int64_t>(logits.size());
    token_logprobs(stream, Tensor(logits.data(), DType::kFloat32, {1, width}),
                   std::span(&token_id, 1), 2, std::span(&found, 1));
    return found;
  };
  const auto infinite = logprobs_of({1, kInfinity, kNan}, 1);
  ASSERT_EQ(infinite.size(), 3u);
  EXPECT_EQ(infinite[0].logprob, 0.0f);
  EXPECT_EQ(infinite[2].logprob, -kInfinity);
  const auto none = logprobs_of({kNan, kNan}, 0);
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0].logprob, -kInfinity);
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

// Chi-square of observed counts against probabilities.
double chi_square(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  const int total = std::accumulate(counts.begin(), counts.end(), 0);
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * probabilities[i];
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0);
      continue;
    }
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

std::vector<double> softmax(const Logits& logits, double temperature) {
  std::vector<double> result;
  for (const float logit : logits) result.push_back(std::exp(logit / temperature));
  const double sum = std::accumulate(result.begin(), result.end(), 0.0);
  for (double& p : result) p /= sum;
  return result;
}

// With 7 degrees of freedom, 24.3 is exceeded in one of a thousand experiments; seeds are fixed.
constexpr double kChiSquare7 = 24.3;

TEST(SamplingTest, FrequenciesAreTheProbabilities) {
  const Logits logits = {0, 1, 2, -1, 0.5f, -3, 1.5f, -0.5f};
  for (const float temperature : {0.7f, 1.0f, 2.0f}) {
    std::vector<int> by_position(8), by_seed(8), by_index(8);
    SamplingRow row;
    row.temperature = temperature;
    for (uint32_t i = 0; i < 20000; ++i) {
      row.seed = 5;
      row.index = 0;
      row.position = i;
      ++by_position[static_cast<size_t>(sample_one(logits, row))];
      row.seed = i;
      row.position = 3;
      ++by_seed[static_cast<size_t>(sample_one(logits, row))];
      row.seed = 5;
      row.index = i;
      ++by_index[static_cast<size_t>(sample_one(logits, row))];
    }
    for (const auto& counts : {by_position, by_seed, by_index}) {
      EXPECT_LT(chi_square(counts, softmax(logits, static_cast<double>(temperature))), kChiSquare7);
    }
  }
}

TEST(SamplingTest, FrequenciesAreTheProbabilitiesOfWhatIsLeft) {
  const Logits logits = {0, 1, 2, -1, 0.5f, -3, 1.5f, -0.5f};
  SamplingRow row;
  row.top_k = 4;     // ids 2, 6, 1, 4
  row.top_p = 0.8f;  // of which 2, 6, 1 have 0.87
  std::vector<int> counts(8);
  for (row.position = 0; row.position < 20000; ++row.position) {
    ++counts[static_cast<size_t>(sample_one(logits, row))];
  }
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(1.5);
  EXPECT_LT(chi_square(counts, {0, std::exp(1.0) / sum, std::exp(2.0) / sum, 0, 0, 0,
                                std::exp(1.5) / sum, 0}),
            kChiSquare7);
}

// A token is as often the choice wherever it stands in a large vocabulary.
TEST(SamplingTest, FrequenciesAreEvenOverALargeVocabulary) {
  const size_t width = 8 * 640;
  const Logits logits(width, 0.25f);
  std::vector<int> counts(8);
  SamplingRow row;
  for (row.position = 0; row.position < 4000; ++row.position) {
    ++counts[static_cast<size_t>(sample_one(logits, row)) / 640];
  }
  EXPECT_LT(chi_square(counts, std::vector<double>(8, 0.125)), kChiSquare7);
}

TEST(SamplingNoiseTest, BitsAreEvenAndTokensIndependent) {
  std::vector<int> high(8), pairs(8);
  for (uint64_t position = 0; position < 200; ++position) {
    const NoiseKey key = noise_key(1, 0, position);
    for (uint32_t id = 0; id < 500; ++id) {
      const uint32_t a = noise_bits(key, id), b = noise_bits(key, id + 1);
      ++high[a >> 29];
      ++pairs[((a >> 31) << 2) | ((b >> 31) << 1) |
              (noise_bits(noise_key(1, 0, position + 1), id) >> 31)];
    }
  }
  EXPECT_LT(chi_square(high, std::vector<double>(8, 0.125)), kChiSquare7);
  EXPECT_LT(chi_square(pairs, std::vector<double>(8, 0.125)), kChiSquare7);
  EXPECT_LT(gumbel_noise(0xffffffffu), kMaxGumbelNoise);
  EXPECT_TRUE(std::isfinite(gumbel_noise(0)));
}

std::vector<double> reference_logprobs(const Logits& logits) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  std::vector<double> result;
  for (const float logit : logits)
    result.push_back(static_cast<double>(logit) - max - std::log(sum));
  return result;
}

TEST(LogprobsTest, AreThoseOfTheRawLogitsInOrderOfRank) {
  RowMaker maker(4);
  for (int i = 0; i < 300; ++i) {
    RandomRow r;
    maker.fill(r, maker.pick(1, 400));
    const int num_logprobs = maker.pick(0, 20);
    r.row.num_logprobs = num_logprobs;
    const SampledToken token = sample_rows({r.logits}, {r.row})[0];
    SamplingRow without = r.row;
    without.num_logprobs = -1;
    ASSERT_EQ(token.token_id, sample_one(r.logits, without));

    std::vector<int32_t> order(r.logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](int32_t id) { return r.logits[static_cast<size_t>(id)]; });
    const auto expected = reference_logprobs(r.logits);
    ASSERT_GE(token.logprobs.size(), 1u);
    EXPECT_EQ(token.logprobs[0].token_id, token.token_id);
    for (size_t j = 0; j < token.logprobs.size(); ++j) {
      const TokenLogprob& t = token.logprobs[j];
      EXPECT_EQ(order.at(static_cast<size_t>(t.rank) - 1), t.token_id);
      if (j > 0) {
        EXPECT_EQ(static_cast<size_t>(t.rank), j);
      }
      EXPECT_NEAR(t.logprob, expected[static_cast<size_t>(t.token_id)], 2e-6);
    }
    const auto num_finite = static_cast<size_t>(
        std::ranges::count_if(r.logits, [](float logit) { return std::isfinite(logit); }));
    EXPECT_EQ(token.logprobs.size() - 1, std::min(static_cast<size_t>(num_logprobs), num_finite));
  }
}

TEST(LogprobsTest, OfGivenTokensLeaveTheLogitsAlone) {
  ThreadPool pool(2);
  Stream stream(pool);
  Logits logits = {0, 1, 2, 5, 4, 3};
  const Logits before = logits;
  const Tensor tensor(logits.data(), DType::kFloat32, {2, 3});
  std::vector<std::vector<TokenLogprob>> out(2);
  token_logprobs(stream, tensor, std::vector<int32_t>{1, 2}, 2, out);
  EXPECT_EQ(logits, before);
  const auto ids = [](const std::vector<TokenLogprob>& row) {
    std::vector<int32_t> result;
    for (const TokenLogprob& t : row) result.push_back(t.token_id);
    return result;
  };
  EXPECT_EQ(ids(out[0]), (std::vector<int32_t>{1, 2, 1}));
  EXPECT_EQ(ids(out[1]), (std::vector<int32_t>{2, 0, 1}));
  EXPECT_EQ(out[0][0].rank, 2);
  EXPECT_EQ(out[1][0].rank, 3);
  EXPECT_NEAR(out[0][1].logprob, -0.40760596, 1e-6);
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
