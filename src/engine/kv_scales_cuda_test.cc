// A KV cache in float8 with a checkpoint's scales on GPUs, beside one in bfloat16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/float8_test_models.h"
#include "engine/gpu_test_util.h"
#include "quire/error.h"
#include "quire/llm.h"

namespace quire {
namespace {

using engine_test::Continued;
using engine_test::Float8Model;
using engine_test::Float8Scales;
using engine_test::has_simulated_gpus;
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

// Simulated GPUs compute the same bits. A real one multiplies queries that are 512 times smaller as
// float16, which holds most of them as they were; what it loses lets some of the later keys, and
// rounded activations, go to a neighbour. Keys that are cut off make a hundred times as much.
double same_on(const EngineConfig& config) {
  return has_simulated_gpus(config) ? 0 : 0.2;
}
constexpr double kCutOff = 2;

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
  const double same = same_on(on_gpus(small.dequantised(), GetParam()));
  for (const char* kv_cache_dtype : {"auto", "fp8", "fp8_e4m3", "fp8_e5m2"}) {
    EXPECT_LE(distance(large, kv_cache_dtype), same) << kv_cache_dtype;
  }
  EXPECT_GT(distance(without, "fp8"), kCutOff);
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
    EXPECT_LE(mean_distance(logprobs(config, "fp8"), expected), same_on(config)) << max_num_seqs;
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
