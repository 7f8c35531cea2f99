// Sampling on the device against sampling on the CPU, which has an oracle of its own. The two round
// differently, so tokens may differ where a score or a bound is met to the last bits.
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops/sampling.h"
#include "ops/sampling_noise.h"

namespace quire::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Logits = std::vector<float>;

struct Batch {
  std::vector<Logits> logits;
  std::vector<SamplingRow> rows;

  void add(Logits row_logits, const SamplingRow& row) {
    logits.push_back(std::move(row_logits));
    rows.push_back(row);
    rows.back().seed = rows.size();
    rows.back().position = 7 * rows.size();
  }
  int64_t vocab() const { return static_cast<int64_t>(logits[0].size()); }
};

SamplingRow row_with(float temperature, int top_k = 0, float top_p = 1.0f, float min_p = 0.0f) {
  SamplingRow row;
  row.temperature = temperature;
  row.top_k = top_k;
  row.top_p = top_p;
  row.min_p = min_p;
  return row;
}

NoiseKey key_of(const SamplingRow& row) {
  return noise_key(row.seed, row.index, row.position);
}

// A batch in device memory.
class DeviceBatch {
 public:
  explicit DeviceBatch(const Batch& batch)
      : rows_(static_cast<int64_t>(batch.rows.size())),
        vocab_(batch.vocab()),
        stride_((vocab_ + 7) / 8 * 8 + 8),
        logits_(static_cast<size_t>(rows_ * stride_)),
        temperature_(batch.rows.size()),
        top_k_(batch.rows.size()),
        top_p_(batch.rows.size()),
        min_p_(batch.rows.size()),
        noise_keys_(2 * batch.rows.size()),
        out_(batch.rows.size()),
        mask_rows_(batch.rows.size()),
        masks_(batch.rows.size() * words()),
        kept_ids_(batch.rows.size()),
        scratch_(static_cast<size_t>(cuda::sample_scratch_bytes(rows_, vocab_))) {
    // Between the rows is what would win.
    std::vector<float> logits(static_cast<size_t>(rows_ * stride_), 1e30f);
    std::vector<float> temperature, top_p, min_p;
    std::vector<int32_t> top_k;
    std::vector<uint32_t> noise_keys;
    // Masks lie in the order of the rows that have one.
    std::vector<int32_t> mask_rows(batch.rows.size(), -1);
    std::vector<uint32_t> masks;
    for (size_t i = 0; i < batch.rows.size(); ++i) {
      const SamplingRow& row = batch.rows[i];
      std::ranges::copy(batch.logits[i], logits.begin() + static_cast<std::ptrdiff_t>(i) * stride_);
      temperature.push_back(row.temperature);
      top_k.push_back(row.top_k);
      top_p.push_back(row.top_p);
      min_p.push_back(row.min_p);
      noise_keys.push_back(key_of(row).low);
      noise_keys.push_back(key_of(row).high);
      if (row.allowed.empty()) continue;
      mask_rows[i] = static_cast<int32_t>(masks.size() / words());
      masks.insert(masks.end(), row.allowed.begin(), row.allowed.end());
    }
    has_masks_ = !masks.empty();
    masks.resize(batch.rows.size() * words(), ~uint32_t{0});
    mask_rows_.upload(mask_rows);
    masks_.upload(masks);
    logits_.upload(logits);
    temperature_.upload(temperature);
    top_k_.upload(top_k);
    top_p_.upload(top_p);
    min_p_.upload(min_p);
    noise_keys_.upload(noise_keys);
    scratch_.poison();
  }

  void sample(CudaStream& stream) { cuda::sample(stream, args()); }
  // Keeps the tokens that their rows' masks allow.
  void sample_again(CudaStream& stream, const std::vector<int32_t>& tokens) {
    kept_ids_.upload(tokens);
    CudaSample again = args();
    again.kept_ids = kept_ids_.data();
    cuda::sample(stream, again);
  }
  void poison() { out_.poison(); }
  std::vector<int32_t> tokens() const { return out_.download(); }

 private:
  size_t words() const { return static_cast<size_t>((vocab_ + 31) / 32); }
  CudaSample args() {
    return {.logits = logits_.data(),
            .stride = stride_,
            .rows = rows_,
            .vocab = vocab_,
            .temperature = temperature_.data(),
            .top_k = top_k_.data(),
            .top_p = top_p_.data(),
            .min_p = min_p_.data(),
            .noise_keys = noise_keys_.data(),
            .out = out_.data(),
            .scratch = scratch_.data(),
            .mask_rows = has_masks_ ? mask_rows_.data() : nullptr,
            .masks = masks_.data()};
  }

  int64_t rows_, vocab_, stride_;
  bool has_masks_ = false;
  DeviceArray<float> logits_, temperature_;
  DeviceArray<int32_t> top_k_;
  DeviceArray<float> top_p_, min_p_;
  DeviceArray<uint32_t> noise_keys_;
  DeviceArray<int32_t> out_, mask_rows_;
  DeviceArray<uint32_t> masks_;
  DeviceArray<int32_t> kept_ids_;
  DeviceArray<std::byte> scratch_;
};

std::vector<int32_t> sample_on_cpu(const Batch& batch) {
  ThreadPool pool(2);
  Stream stream(pool);
  Logits all;
  for (const Logits& row : batch.logits) all.insert(all.end(), row.begin(), row.end());
  const auto num_rows = static_cast<int64_t>(batch.rows.size());
  std::vector<SampledToken> out(batch.rows.size());
  sample(stream, Tensor(all.data(), DType::kFloat32, {num_rows, batch.vocab()}), batch.rows, out);
  std::vector<int32_t> ids;
  for (const SampledToken& token : out) ids.push_back(token.token_id);
  return ids;
}

// Whether rounding may decide between two tokens of a row: their scores are equal but for it, or
// the one of the better score is on the edge of what min_p or top_p keeps.
bool is_tie(const Logits& logits, const SamplingRow& row, int32_t a, int32_t b) {
  double max = -kInfinity;
  for (const float logit : logits) max = logit > max ? static_cast<double>(logit) : max;
  const auto log_weight = [&](int32_t id) {
    return (static_cast<double>(logits[static_cast<size_t>(id)]) - max) / row.temperature;
  };
  const auto score = [&](int32_t id) {
    return log_weight(id) + gumbel_noise(noise_bits(key_of(row), static_cast<uint32_t>(id)));
  };
  if (std::abs(score(a) - score(b)) < 1e-5) return true;
  const int32_t better = score(a) > score(b) ? a : b;
  if (row.min_p > 0 && std::abs(log_weight(better) - std::log(row.min_p)) < 1e-5) return true;
  std::vector<double> weights;  // of what min_p and top_k leave
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == -kInfinity) continue;
    const double own = log_weight(static_cast<int32_t>(i));
    if (row.min_p <= 0 || own >= std::log(row.min_p)) weights.push_back(own);
  }
  std::ranges::sort(weights, std::greater<>());
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < weights.size()) {
    const double lowest = weights[static_cast<size_t>(row.top_k) - 1];
    std::erase_if(weights, [lowest](double own) { return own < lowest; });
  }
  double total = 0;
  for (const double own : weights) total += std::exp(own);
  double before = 0;
  for (const double own : weights) before += own > log_weight(better) ? std::exp(own) : 0.0;
  for (size_t i = 0; i < static_cast<size_t>(better); ++i) {
    if (logits[i] == logits[static_cast<size_t>(better)]) before += std::exp(log_weight(better));
  }
  return std::abs(before / total - row.top_p) < 2e-6;
}

class SamplingCudaTest : public CudaTest {
 protected:
  int pick(int low, int high) {
    return low + static_cast<int>(random()() % static_cast<unsigned>(high - low + 1));
  }
  float real(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random());
  }

  Logits random_logits(int64_t vocab) {
    Logits logits = random_values(static_cast<size_t>(vocab), random(), real(0.1f, 6));
    const bool is_rounded = pick(1, 4) == 1;  // for ties
    const bool is_peaked = pick(1, 2) == 1;
    for (float& logit : logits) {
      if (is_rounded) logit = std::round(logit);
      const int special = pick(1, 200);
      if (special == 1) logit = -kInfinity;
      if (special == 2) logit = kNan;
    }
    if (is_peaked) {
      for (int i = 0; i < 30; ++i) {
        logits[random()() % logits.size()] = real(8, 25);
      }
    }
    return logits;
  }

  // Of few tokens, of nearly all, of none.
  std::vector<uint32_t> random_mask(int64_t vocab) {
    const int share = pick(0, 3);
    std::vector<uint32_t> mask(static_cast<size_t>((vocab + 31) / 32));
    for (uint32_t& word : mask) {
      if (share == 1 && pick(1, 50) == 1) word = 1u << pick(0, 31);
      if (share == 2) word = random()();
      if (share == 3) word = pick(1, 20) == 1 ? 0 : ~uint32_t{0};
    }
    return mask;
  }

  SamplingRow random_row(int64_t vocab) {
    SamplingRow row = row_with(pick(1, 6) == 1 ? 0 : real(0.05f, 2));
    if (pick(1, 2) == 1) {
      const int most = pick(1, 3) == 1 ? static_cast<int>(vocab) + 5 : 100;
      row.top_k = pick(1, most);
    }
    constexpr float kTopP[] = {1e-6f, 0.01f, 0.3f, 0.8f, 0.95f, 0.999f, 1.0f};
    if (pick(1, 2) == 1) row.top_p = kTopP[pick(0, 6)];
    constexpr float kMinP[] = {1e-9f, 0.001f, 0.05f, 0.5f, 1.0f};
    if (pick(1, 4) == 1) row.min_p = kMinP[pick(0, 4)];
    return row;
  }

  void expect_as_on_cpu(const Batch& batch) {
    DeviceBatch device(batch);
    device.sample(stream());
    synchronize();
    const std::vector<int32_t> tokens = device.tokens();
    const std::vector<int32_t> expected = sample_on_cpu(batch);
    size_t num_ties = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == expected[i]) continue;
      const SamplingRow& row = batch.rows[i];
      SCOPED_TRACE("row " + std::to_string(i) + " temperature " + std::to_string(row.temperature) +
                   " top_k " + std::to_string(row.top_k) + " top_p " + std::to_string(row.top_p) +
                   " min_p " + std::to_string(row.min_p));
      ASSERT_GE(tokens[i], 0);
      ASSERT_LT(tokens[i], batch.vocab());
      ASSERT_NE(row.temperature, 0.0f);
      ASSERT_TRUE(is_tie(batch.logits[i], row, tokens[i], expected[i]))
          << tokens[i] << ", not " << expected[i];
      ++num_ties;
    }
    EXPECT_LE(num_ties, 1 + tokens.size() / 500);
  }
};

TEST_F(SamplingCudaTest, RandomRows) {
  const std::pair<int64_t, int> sizes[] = {{1, 50},     {2, 200},     {7, 1500},    {127, 1000},
                                           {128, 500},  {129, 500},   {500, 2000},  {4096, 300},
                                           {4097, 300}, {10007, 500}, {32000, 200}, {151936, 200}};
  for (const auto& [vocab, num_rows] : sizes) {
    SCOPED_TRACE("vocab " + std::to_string(vocab));
    Batch batch;
    for (int i = 0; i < num_rows; ++i) batch.add(random_logits(vocab), random_row(vocab));
    expect_as_on_cpu(batch);
  }
}

// Rows with masks of all kinds between rows without.
TEST_F(SamplingCudaTest, MasksSayWhatMayCome) {
  for (const int64_t vocab : {1, 31, 33, 129, 5000, 151936}) {
    SCOPED_TRACE("vocab " + std::to_string(vocab));
    std::vector<std::vector<uint32_t>> masks;
    for (int i = 0; i < 200; ++i) masks.push_back(random_mask(vocab));
    Batch batch;
    for (const std::vector<uint32_t>& mask : masks) {
      SamplingRow row = random_row(vocab);
      if (pick(1, 4) != 1) row.allowed = mask;
      batch.add(random_logits(vocab), row);
    }
    expect_as_on_cpu(batch);
  }
}

TEST_F(SamplingCudaTest, KeepsTokensThatTheMaskAllows) {
  constexpr int64_t kVocab = 5000;
  std::vector<std::vector<uint32_t>> masks;
  for (int i = 0; i < 64; ++i) masks.push_back(random_mask(kVocab));
  Batch batch;
  for (size_t i = 0; i < masks.size(); ++i) {
    SamplingRow row = random_row(kVocab);
    if (i % 4 != 0) row.allowed = masks[i];
    batch.add(random_logits(kVocab), row);
  }
  DeviceBatch device(batch);
  device.sample(stream());
  synchronize();
  const std::vector<int32_t> sampled = device.tokens();
  std::vector<int32_t> before;
  for (size_t i = 0; i < masks.size(); ++i)
    before.push_back(pick(0, 8) == 0 ? kNoToken : pick(0, kVocab - 1));
  device.poison();
  device.sample_again(stream(), before);
  synchronize();
  const std::vector<int32_t> tokens = device.tokens();
  for (size_t i = 0; i < masks.size(); ++i) {
    const auto id = static_cast<size_t>(before[i]);
    const bool is_kept =
        i % 4 == 0 || before[i] == kNoToken || (masks[i][id / 32] >> (id % 32) & 1u) != 0;
    EXPECT_EQ(tokens[i], is_kept ? before[i] : sampled[i]) << "row " << i;
  }
}

TEST_F(SamplingCudaTest, LogitsThatAreNoNumbers) {
  for (const int64_t vocab : {1, 7, 5000}) {
    SCOPED_TRACE("vocab " + std::to_string(vocab));
    Batch batch;
    const auto size = static_cast<size_t>(vocab);
    for (const SamplingRow& row :
         {row_with(0), row_with(1), row_with(0.7f, 3), row_with(1, 0, 0.5f), row_with(2, 5, 0.9f),
          row_with(1, 0, 1, 0.1f), row_with(1, 0, 0.9f, 0.1f)}) {
      batch.add(Logits(size, -kInfinity), row);
      batch.add(Logits(size, kNan), row);
      batch.add(Logits(size, kInfinity), row);
      batch.add(Logits(size, 0.0f), row);
      Logits some(size, kNan);
      some[size / 2] = kInfinity;
      batch.add(some, row);
      some[size / 2] = -3;
      batch.add(some, row);
      some[size - 1] = -kInfinity;
      batch.add(some, row);
      Logits zeros(size, -1.0f);
      zeros[size / 3] = -0.0f;
      zeros[size - 1] = 0.0f;
      batch.add(zeros, row);
    }
    expect_as_on_cpu(batch);
  }
}

// A row without a finite maximum has no token, whatever its neighbours are.
TEST_F(SamplingCudaTest, RowsWithoutADistributionAreSaid) {
  constexpr size_t kVocab = 5000;
  const SamplingRow all_rows[] = {row_with(0), row_with(1), row_with(0.7f, 3), row_with(1, 0, 0.5f),
                                  row_with(1, 0, 1, 0.1f)};
  Batch batch;
  for (const SamplingRow& row : all_rows) {
    for (const float logit : {kNan, -kInfinity, kInfinity, 0.0f}) {
      batch.add(Logits(kVocab, logit), row);
    }
    Logits one(kVocab, kNan);
    one[4321] = -3;
    batch.add(one, row);
  }
  DeviceBatch device(batch);
  device.sample(stream());
  synchronize();
  const std::vector<int32_t> tokens = device.tokens();
  for (size_t i = 0; i < tokens.size(); i += 5) {
    SCOPED_TRACE("row " + std::to_string(i));
    for (size_t infinite = 0; infinite < 3; ++infinite) {
      EXPECT_EQ(tokens[i + infinite], kNoToken);
    }
    EXPECT_GE(tokens[i + 3], 0);
    EXPECT_EQ(tokens[i + 4], 4321);
  }
}

// Temperatures without a finite reciprocal, and such that all scores but one overflow.
TEST_F(SamplingCudaTest, ExtremeTemperatures) {
  Batch batch;
  for (const float temperature : {1e-40f, 1e-30f, 1e-6f, 1e6f, 1e30f}) {
    for (const float scale : {1e-3f, 1.0f, 1e6f, 1e37f}) {
      for (const auto& [top_k, top_p] : {std::pair(0, 1.0f), {0, 0.9f}, {20, 1.0f}, {20, 0.9f}}) {
        batch.add(random_values(3000, random(), scale), row_with(temperature, top_k, top_p));
      }
    }
  }
  expect_as_on_cpu(batch);
}

// More tokens pass top_k's first bound than are listed: they lie in few chunks, or are tied.
TEST_F(SamplingCudaTest, ManyTokensNearTheTop) {
  Batch batch;
  for (const int top_k : {3, 20, 500, 512, 513, 1000, 4000, 19999}) {
    for (const float top_p : {0.2f, 0.95f, 1.0f}) {
      Logits clustered = random_values(20000, random());
      for (size_t i = 5000; i < 7000; ++i) clustered[i] += 10;
      batch.add(clustered, row_with(1, top_k, top_p));
      batch.add(clustered, row_with(1, top_k, top_p, 0.01f));
      for (float& logit : clustered) logit = std::round(logit * 0.5f);
      batch.add(clustered, row_with(3, top_k, top_p));
    }
  }
  expect_as_on_cpu(batch);
}

// Every token of a row is drawn about as often as its probability says.
TEST_F(SamplingCudaTest, DrawsByProbability) {
  constexpr int kDraws = 20000;
  const Logits logits = {0.0f, std::log(2.0f), std::log(3.0f), std::log(4.0f), kNan};
  Batch batch;
  for (int i = 0; i < kDraws; ++i) batch.add(logits, row_with(1));
  DeviceBatch device(batch);
  device.sample(stream());
  synchronize();
  std::vector<int> counts(logits.size());
  for (const int32_t token : device.tokens()) ++counts.at(static_cast<size_t>(token));
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(counts[static_cast<size_t>(i)] / static_cast<double>(kDraws), (i + 1) * 0.1, 0.015);
  }
  EXPECT_EQ(counts[4], 0);
}

// A row's token depends only on the row, and in a graph every replay gives it again.
TEST_F(SamplingCudaTest, SameTokensInAnyBatchAndInGraphs) {
  constexpr int64_t kVocab = 20011;
  Batch batch;
  for (int i = 0; i < 64; ++i) batch.add(random_logits(kVocab), random_row(kVocab));
  DeviceBatch device(batch);
  device.sample(stream());
  synchronize();
  const std::vector<int32_t> tokens = device.tokens();

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  check_cuda(cudaStreamBeginCapture(stream().get(), cudaStreamCaptureModeThreadLocal), "capturing");
  device.sample(stream());
  check_cuda(cudaStreamEndCapture(stream().get(), &graph), "capturing");
  check_cuda(cudaGraphInstantiate(&replay, graph, 0), "instantiating");
  for (int i = 0; i < 5; ++i) {
    device.poison();
    check_cuda(cudaGraphLaunch(replay, stream().get()), "replaying");
    synchronize();
    ASSERT_EQ(device.tokens(), tokens);
  }
  check_cuda(cudaGraphExecDestroy(replay), "cleaning up");
  check_cuda(cudaGraphDestroy(graph), "cleaning up");

  for (size_t i = 0; i < 8; ++i) {
    Batch one;
    one.logits = {batch.logits[i]};
    one.rows = {batch.rows[i]};
    DeviceBatch alone(one);
    alone.sample(stream());
    synchronize();
    ASSERT_EQ(alone.tokens()[0], tokens[i]);
  }
}

TEST_F(SamplingCudaTest, LargeVocabularies) {
  constexpr int64_t kVocab = 1'500'001;
  Batch batch;
  for (const SamplingRow& row : {row_with(0), row_with(1), row_with(0.6f, 20, 0.95f),
                                 row_with(1, 0, 0.9f), row_with(1, 0, 1, 0.05f)}) {
    batch.add(random_values(kVocab, random(), 3), row);
  }
  expect_as_on_cpu(batch);
}

TEST_F(SamplingCudaTest, NoRows) {
  cuda::sample(stream(), {});
  synchronize();
}

}  // namespace
}  // namespace quire::ops
