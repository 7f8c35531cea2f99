#include "cli/batch.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire::cli {
namespace {

EngineConfig tiny() {
  EngineConfig config;
  config.model = QUIRE_SOURCE_DIR "/tests/golden/models/qwen3-tied";
  config.skip_tokenizer_init = true;
  config.threads = 1;
  config.max_model_len = 64;
  return config;
}

PromptRequest tokens() {
  return {.where = "prompt", .prompt = std::vector<int32_t>{1, 2, 3}, .sampling = {}};
}

std::vector<double> fractions_of(Batch& batch) {
  std::vector<double> fractions;
  const auto on_step = [&](const Batch::Progress& progress, const EngineStats&) {
    fractions.push_back(progress.fraction);
  };
  batch.run({.on_output = [](size_t, const Json&, const RequestOutput&) {}, .on_step = on_step},
            false);
  return fractions;
}

TEST(Batch, ProgressMovesWithTheTokensAndEndsAtOne) {
  LLMEngine engine(tiny());
  for (int round = 0; round < 2; ++round) {  // of an engine that has counted before, too
    Batch batch(engine);
    SamplingParams params{.temperature = 0, .max_tokens = 8, .ignore_eos = true};
    batch.add(tokens(), params);
    params.n = 2;
    params.max_tokens.reset();  // as many as the context holds
    batch.add(tokens(), params);
    const std::vector<double> fractions = fractions_of(batch);
    ASSERT_GT(fractions.size(), 40U);
    for (size_t i = 1; i < fractions.size(); ++i) EXPECT_GE(fractions[i], fractions[i - 1]);
    EXPECT_GT(fractions[4], 0);
    EXPECT_LT(fractions[4], 0.5);
    EXPECT_EQ(fractions.back(), 1);
  }
}

TEST(Batch, AnEarlyEndIsProgress) {
  LLMEngine engine(tiny());
  Batch batch(engine);
  batch.add(tokens(), {.temperature = 0, .max_tokens = 50, .ignore_eos = true});
  std::atomic<bool> stop = false;
  double last = 0;
  const auto on_step = [&](const Batch::Progress& progress, const EngineStats&) {
    last = progress.fraction;
    stop = true;
  };
  batch.run({.on_output = [](size_t, const Json&, const RequestOutput&) {}, .on_step = on_step},
            stop);
  EXPECT_EQ(last, 1);
}

TEST(Batch, LowerPrioritiesGoFirstAndOutputsStayInOrder) {
  EngineConfig config = tiny();
  config.max_num_seqs = 1;
  LLMEngine engine(config);
  Batch batch(engine);
  PromptRequest second = tokens();
  second.priority = -1;
  batch.add(tokens(), {.temperature = 0, .max_tokens = 4, .ignore_eos = true});
  batch.add(second, {.temperature = 0, .max_tokens = 4, .ignore_eos = true});
  std::vector<size_t> outputs;
  const auto on_output = [&](size_t index, const Json&, const RequestOutput&) {
    outputs.push_back(index);
  };
  const auto on_step = [&](const Batch::Progress& progress, const EngineStats&) {
    // The first to finish is not the first prompt.
    if (progress.num_finished == 1) {
      EXPECT_TRUE(outputs.empty());
    }
  };
  batch.run({.on_output = on_output, .on_step = on_step}, false);
  EXPECT_EQ(outputs, (std::vector<size_t>{0, 1}));
}

}  // namespace
}  // namespace quire::cli
