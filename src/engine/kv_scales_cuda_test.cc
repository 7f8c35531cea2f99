// A KV cache in float8 with a checkpoint's scales on GPUs, beside one in bfloat16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/float8_test_models.h"
#include "engine/gpu_test_util.h"
#include "quire/error.h"
#include "quire/llm.h"

namespace quire {
namespace {

using engine_test::Continued;
using engine_test::Float8Model;
using engine_test::Float8Scales;
using engine_test::KvCacheScales;
using engine_test::on_gpus;
using ::testing::AllOf;
using ::testing::HasSubstr;

class KvScalesOnGpus : public testing::TestWithParam<int> {
 protected:
  static std::vector<float> logprobs(EngineConfig config, const std::string& kv_cache_dtype) {
    config.kv_cache_dtype = kv_cache_dtype;
    return Continued(config).logprobs;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, KvScalesOnGpus, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

// What the types of a real GPU's products lose of queries that are 4,096 times smaller.
constexpr double kSame = 0.02;

double mean_distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(double{a[i]} - b[i]);
  return sum / static_cast<double>(a.size());
}

// Keys and values that are a power of two larger are stored as the same numbers where their scales
// are so, too. Without scales they would end at 448.
TEST_P(KvScalesOnGpus, KeepWhatFloat8WouldCutOff) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  const Float8Model small(Float8Scales::kOutput, KvCacheScales::kHeads);
  const Float8Model large(Float8Scales::kOutput, KvCacheScales::kLarge);
  const Float8Model without(Float8Scales::kOutput, KvCacheScales::kLeftOut);
  const auto distance = [&](const Float8Model& model, const std::string& kv_cache_dtype) {
    return mean_distance(logprobs(on_gpus(model.dequantised(), GetParam()), kv_cache_dtype),
                         logprobs(on_gpus(small.dequantised(), GetParam()), kv_cache_dtype));
  };
  EXPECT_LT(distance(large, "auto"), kSame);
  EXPECT_LT(distance(large, "fp8"), kSame);
  EXPECT_LT(distance(large, "fp8_e4m3"), kSame);
  EXPECT_LT(distance(large, "fp8_e5m2"), kSame);
  EXPECT_GT(distance(without, "fp8"), 10 * kSame);
}

// One sequence and several.
TEST_P(KvScalesOnGpus, GoWithFloat8Weights) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  const Float8Model small(Float8Scales::kOutput, KvCacheScales::kHeads);
  const Float8Model large(Float8Scales::kOutput, KvCacheScales::kLarge);
  for (const int64_t max_num_seqs : {8, 1}) {
    EngineConfig config = on_gpus(small.quantised(), GetParam());
    config.max_num_seqs = max_num_seqs;
    const std::vector<float> expected = logprobs(config, "fp8");
    config.model = large.quantised().string();
    EXPECT_LT(mean_distance(logprobs(config, "fp8"), expected), kSame) << max_num_seqs;
  }
}

TEST_P(KvScalesOnGpus, BadOnesAreNamedBeforeMemoryIsTaken) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  const Float8Model model(Float8Scales::kOutput, KvCacheScales::kZero);
  EngineConfig config = on_gpus(model.dequantised(), GetParam());
  config.kv_cache_dtype = "fp8";
  try {
    const LLM llm(config);
    FAIL() << "a scale is zero";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.layers.0.self_attn.k_scale holds 0"),
                                    HasSubstr("more than zero")));
  }
  config.kv_cache_dtype = "auto";
  EXPECT_NO_THROW(LLM{config});
}

}  // namespace
}  // namespace quire
