// Requests that bring their adapter along (RequestOptions::lora_request).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/temporary_folder_test_util.h"
#include "engine/lora_store.h"
#include "engine/lora_test_util.h"
#include "engine/random_requests.h"
#include "quire/llm_engine.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

class LoraRequests : public testing::Test {
 protected:
  LoraRequests() : engine_(config_of(root_.path())) {}

  static EngineConfig config_of(const std::filesystem::path& root) {
    constexpr const char* kModel = "qwen3-tied";
    write_adapter(root / "one", kModel, {.seed = 1});
    write_adapter(root / "two", kModel, {.seed = 2});
    EngineConfig config = base_config(kModel);
    config.dtype = "float32";
    config.lora.enabled = true;
    config.lora.max_loras = 2;
    config.lora.modules = {{"one", (root / "one").string()}};
    return config;
  }

  std::string path_of(const std::string& adapter) const {
    return (root_.path() / adapter).string();
  }

  std::vector<int32_t> tokens_with(const RequestOptions& options) {
    SamplingParams params;
    params.temperature = 0;
    params.ignore_eos = true;
    params.max_tokens = 12;
    engine_.add_request("x", std::vector<int32_t>{3, 1, 4, 1, 5}, params, options);
    std::vector<int32_t> tokens;
    while (!engine_.is_finished()) {
      for (const RequestOutput& output : engine_.step()) tokens = output.outputs[0].token_ids;
    }
    return tokens;
  }
  std::string refusal_of(const RequestOptions& options) {
    try {
      tokens_with(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  }

  TemporaryFolder root_;
  LLMEngine engine_;
};

TEST_F(LoraRequests, LoadTheAdapterOnce) {
  const RequestOptions brought = {.lora_request = LoraRequest{"new", path_of("two")}};
  const int64_t num_loads = engine_.stats().lora.num_loads;
  const std::vector<int32_t> tokens = tokens_with(brought);
  EXPECT_NE(tokens, tokens_with({}));
  EXPECT_NE(tokens, tokens_with({.lora = "one"}));
  EXPECT_EQ(tokens, tokens_with(brought));
  EXPECT_EQ(tokens, tokens_with({.lora = "new"}));
  EXPECT_EQ(engine_.stats().lora.num_loads, num_loads + 1);
  engine_.unload_lora("new");
  EXPECT_EQ(tokens, tokens_with(brought));
}

// Whatever another thread does with the name meanwhile.
TEST_F(LoraRequests, GetTheWeightsOfTheirFolder) {
  LoraOptions options;
  options.enabled = true;
  const auto model = golden_models() / "qwen3-tied";
  LoraStore store(options, lora_target(model, load_model_config(model), true, 16));
  const std::string one = store.load_once({"name", path_of("one")})->content_hash;
  ASSERT_NE(one, store.load_once({"other", path_of("two")})->content_hash);
  std::atomic<bool> done = false;
  std::thread changing([&] {
    for (int i = 0; !done; ++i) {
      if (i % 3 < 2) store.load("name", path_of(i % 3 == 0 ? "two" : "one"), /*replace=*/true);
      if (i % 3 == 2) store.unload("name");
    }
  });
  for (int i = 0; i < 300; ++i) {
    try {
      EXPECT_EQ(store.load_once({"name", path_of("one")})->content_hash, one);
    } catch (const Error& error) {  // the name stands for the other folder
      EXPECT_THAT(error.what(), HasSubstr("There is an adapter \"name\" already"));
    }
  }
  done = true;
  changing.join();
}

TEST_F(LoraRequests, AreRefusedWhereTheyContradict) {
  EXPECT_THAT(refusal_of({.lora_request = LoraRequest{"one", path_of("two")}}),
              HasSubstr("There is an adapter \"one\" already, from "));
  EXPECT_THAT(refusal_of({.lora_request = LoraRequest{"new", "no/such"}}), HasSubstr("no/such"));
  EXPECT_THAT(refusal_of({.lora_request = LoraRequest{"", path_of("two")}}),
              HasSubstr("expected 1 to 256"));
  EXPECT_THAT(refusal_of({.lora = "one", .lora_request = LoraRequest{"new", path_of("two")}}),
              HasSubstr("expected one of them"));
  EXPECT_THAT(refusal_of({.lora_weights = engine_.hold_lora("one"),
                          .lora_request = LoraRequest{"new", path_of("two")}}),
              HasSubstr("lora_weights"));
  EXPECT_EQ(refusal_of({.lora_request = LoraRequest{"one", path_of("one")}}), "taken");
  EXPECT_EQ(refusal_of({.lora_request = LoraRequest{"one", path_of("one") + "/"}}), "taken");
  EXPECT_EQ(refusal_of({.lora_request = LoraRequest{"one", path_of("no/.././one")}}), "taken");
}

}  // namespace
}  // namespace quire
