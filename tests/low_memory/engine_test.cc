// Each allocation of an engine's steps fails once, in turn: requests get what they would have got,
// as these threads have a reserve.
#include <gtest/gtest.h>

#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "base/memory_reserve.h"
#include "low_memory/failing_allocator.h"
#include "quire/async_llm.h"

namespace quire {
namespace {

using low_memory::FailOne;

// The parameter: how drafts are made; empty: there are none.
class LowMemoryEngine : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    before_ = std::get_new_handler();
    MemoryReserve::let_new_use_them();
    low_memory::exempt_this_thread();
  }
  void TearDown() override { std::set_new_handler(before_); }

  // The ids of a request's n outputs, one after another. This thread's own allocations don't fail.
  static std::vector<int32_t> generate(AsyncLLM& llm) {
    const std::vector<int32_t> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
    SamplingParams params;
    params.n = 2;
    params.max_tokens = 3;
    params.temperature = 0.8;
    params.seed = 7;
    params.ignore_eos = true;
    params.logprobs = 2;
    params.frequency_penalty = 0.5;
    params.logit_bias = {{1, 50.0F}, {2, 50.0F}, {3, 50.0F}};  // of the prompt's: drafts are found
    RequestOptions options;
    options.output_kind = OutputKind::kFinalOnly;
    RequestStream stream = llm.generate(prompt, params, options);
    std::vector<int32_t> ids;
    while (const auto output = stream.next()) {
      EXPECT_EQ(output->error, "");
      for (const CompletionOutput& completion : output->outputs) {
        ids.insert(ids.end(), completion.token_ids.begin(), completion.token_ids.end());
      }
    }
    return ids;
  }

 private:
  std::new_handler before_ = nullptr;
};

TEST_P(LowMemoryEngine, AnyAllocationOfAStepMayFail) {
  EngineConfig config;
  config.model = QUIRE_SOURCE_DIR "/tests/golden/models/qwen3-tied";
  config.device = "cpu";
  config.threads = 4;  // two a rank
  config.tensor_parallel_size = 2;
  config.enable_prefix_caching = false;
  config.kv_cache_memory_bytes = 1 << 20;
  config.skip_tokenizer_init = true;
  if (!GetParam().empty()) {
    config.speculative_config.emplace().method = GetParam();
    config.speculative_config->num_speculative_tokens = 4;
    const bool has_head = GetParam() == "eagle3";
    if (has_head || GetParam() == "draft_model") {
      config.speculative_config->model =
          has_head ? QUIRE_SOURCE_DIR "/tests/golden/eagle/shared" : config.model;
      config.speculative_config->adaptive = false;
    }
    if (GetParam() == "ngram") config.speculative_config->prompt_lookup_min = 1;
  }
  AsyncLLM llm(config);
  const std::vector<int32_t> expected = generate(llm);
  ASSERT_EQ(expected.size(), 6);
  long index = 0;
  for (bool failed = true; failed; ++index) {
    const FailOne fail(index);
    ASSERT_EQ(generate(llm), expected) << "allocation " << index;
    failed = fail.failed();
  }
  EXPECT_GT(index, 100);
}

INSTANTIATE_TEST_SUITE_P(Drafts, LowMemoryEngine,
                         testing::Values("", "ngram", "suffix", "draft_model", "eagle3"));

}  // namespace
}  // namespace quire
