// Log-probabilities on the device against those of the CPU.
#include <cmath>
#include <limits>
#include <string>

#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops/sampling.h"

namespace quire::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Logits = std::vector<float>;

class LogprobsCudaTest : public CudaTest {
 protected:
  void expect_as_on_cpu(const std::vector<Logits>& logits, const std::vector<int32_t>& token_ids,
                        int num_top) {
    const auto num_rows = static_cast<int64_t>(logits.size());
    const auto vocab = static_cast<int64_t>(logits[0].size());
    const int64_t stride = (vocab + 7) / 8 * 8 + 16;
    Logits packed;
    Logits strided(static_cast<size_t>(num_rows * stride), 1e30f);
    for (size_t i = 0; i < logits.size(); ++i) {
      packed.insert(packed.end(), logits[i].begin(), logits[i].end());
      std::ranges::copy(logits[i], strided.begin() + static_cast<std::ptrdiff_t>(i) * stride);
    }
    DeviceArray<float> device_logits(strided);
    DeviceArray<int32_t> ids(token_ids);
    DeviceArray<float> token_logprobs_out(logits.size());
    DeviceArray<int32_t> ranks(logits.size());
    const size_t num_tops = logits.size() * static_cast<size_t>(num_top);
    DeviceArray<int32_t> top_ids(num_tops);
    DeviceArray<float> top_logprobs(num_tops);
    DeviceArray<std::byte> scratch(
        static_cast<size_t>(cuda::sample_scratch_bytes(num_rows, vocab)));
    cuda::logprobs(stream(), {device_logits.data(), stride, num_rows, vocab, ids.data(), num_top,
                              token_logprobs_out.data(), ranks.data(), top_ids.data(),
                              top_logprobs.data(), scratch.data()});
    synchronize();

    ThreadPool pool(2);
    Stream cpu(pool);
    std::vector<std::vector<TokenLogprob>> expected(logits.size());
    token_logprobs(cpu, Tensor(packed.data(), DType::kFloat32, {num_rows, vocab}), token_ids,
                   num_top, expected);
    const auto got_logprobs = token_logprobs_out.download();
    const auto got_ranks = ranks.download();
    const auto got_top_ids = top_ids.download();
    const auto got_top_logprobs = top_logprobs.download();
    for (size_t row = 0; row < logits.size(); ++row) {
      SCOPED_TRACE("row " + std::to_string(row));
      ASSERT_EQ(got_ranks[row], expected[row][0].rank);
      expect_same(got_logprobs[row], expected[row][0].logprob);
      for (size_t i = 0; i < static_cast<size_t>(num_top); ++i) {
        const size_t at = row * static_cast<size_t>(num_top) + i;
        if (i + 1 >= expected[row].size()) {
          ASSERT_EQ(got_top_ids[at], -1);
          continue;
        }
        ASSERT_EQ(got_top_ids[at], expected[row][i + 1].token_id);
        expect_same(got_top_logprobs[at], expected[row][i + 1].logprob);
      }
    }
  }

  static void expect_same(float actual, float expected) {
    if (std::isinf(expected)) {
      ASSERT_EQ(actual, expected);
    } else {
      ASSERT_NEAR(actual, expected, 2e-6 * std::max(1.0f, std::abs(expected)));
    }
  }

  int32_t pick(size_t size) { return static_cast<int32_t>(random()() % size); }
};

TEST_F(LogprobsCudaTest, RandomRows) {
  for (const size_t vocab : {1, 2, 7, 128, 129, 4097, 32000, 151936}) {
    for (const int num_top : {0, 1, 5, 20, 200}) {
      SCOPED_TRACE("vocab " + std::to_string(vocab) + " top " + std::to_string(num_top));
      std::vector<Logits> logits;
      std::vector<int32_t> ids;
      for (const float scale : {0.1f, 3.0f, 12.0f}) {
        for (const bool is_rounded : {false, true}) {
          logits.push_back(random_values(vocab, random(), scale));
          for (float& logit : logits.back()) {
            if (is_rounded) logit = std::round(logit);
            if (pick(100) == 1) logit = kNan;
            if (pick(100) == 1) logit = -kInfinity;
          }
          ids.push_back(pick(vocab));
          logits.back()[static_cast<size_t>(ids.back())] = scale;
        }
      }
      expect_as_on_cpu(logits, ids, num_top);
    }
  }
}

TEST_F(LogprobsCudaTest, ManyTiesAndClusters) {
  constexpr size_t kVocab = 10000;
  Logits clustered = random_values(kVocab, random());
  for (size_t i = 3000; i < 4000; ++i) clustered[i] += 20;
  Logits rounded_cluster = clustered;
  for (float& logit : rounded_cluster) logit = std::round(logit);
  expect_as_on_cpu({Logits(kVocab, 2.5f), clustered, rounded_cluster}, {77, 3500, 9999}, 20);
}

TEST_F(LogprobsCudaTest, Infinities) {
  constexpr size_t kVocab = 1000;
  Logits some(kVocab, 1.0f);
  some[500] = some[700] = kInfinity;
  Logits one(kVocab, -kInfinity);
  one[9] = 4.0f;
  expect_as_on_cpu({Logits(kVocab, -kInfinity), some, some, some, one, one},
                   {5, 500, 700, 3, 9, 10}, 10);
}

}  // namespace
}  // namespace quire::ops
