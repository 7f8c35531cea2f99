#include "runner/linear_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace quire {
namespace {

using testing::ElementsAre;

constexpr ops::GpuKind kGpu = {90, 132};

TuningRequest tuned_qwen3_600m(int num_ranks = 1) {
  TuningRequest request;
  ModelConfig& config = request.model.config;
  config.architecture = "Qwen3ForCausalLM";
  config.vocab_size = 151936;
  config.hidden_size = 1024;
  config.intermediate_size = 3072;
  config.num_hidden_layers = 28;
  config.num_attention_heads = 16;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.max_position_embeddings = 40960;
  config.layer_sliding_window.assign(28, 0);
  request.model.dtype = DType::kBFloat16;
  request.model.max_model_len = 40960;
  request.model.device.type = DeviceType::kCuda;
  request.model.size = num_ranks;
  request.max_step_tokens = 16384;
  request.max_logits_rows = 512;
  request.rows = {64};
  return request;
}

std::vector<std::string> described(const std::vector<TuningTask>& tasks) {
  std::vector<std::string> texts;
  for (const TuningTask& task : tasks) {
    const ops::LinearShape& shape = task.shape;
    EXPECT_EQ(shape.gpu, kGpu);
    texts.push_back(task.name + " " + std::to_string(shape.n) + "x" + std::to_string(shape.k) +
                    " " + std::to_string(shape.rows) + " " + std::string(name_of(shape.out_dtype)));
  }
  return texts;
}

int64_t all_rows(const MatrixProduct&, int64_t rows) {
  return rows;
}

TEST(PlanTuning, HasTheModelsProducts) {
  EXPECT_THAT(described(plan_tuning(tuned_qwen3_600m(), kGpu, all_rows)),
              ElementsAre("qkv_proj 4096x1024 64 bfloat16", "o_proj 1024x2048 64 bfloat16",
                          "gate_up_proj 6144x1024 64 bfloat16", "down_proj 1024x3072 64 bfloat16",
                          "lm_head 151936x1024 64 float32"));
}

TEST(PlanTuning, HasARanksShareOfThem) {
  EXPECT_THAT(described(plan_tuning(tuned_qwen3_600m(2), kGpu, all_rows)),
              ElementsAre("qkv_proj 2048x1024 64 bfloat16", "o_proj 1024x1024 64 bfloat16",
                          "gate_up_proj 3072x1024 64 bfloat16", "down_proj 1024x1536 64 bfloat16",
                          "lm_head 75968x1024 64 float32"));
}

TEST(PlanTuning, PassesOverFloat8) {
  TuningRequest request = tuned_qwen3_600m();
  request.model.device.compute_capability = 90;
  request.model.rounding = WeightRounding::kFloat8;
  EXPECT_THAT(described(plan_tuning(request, kGpu, all_rows)),
              ElementsAre("lm_head 151936x1024 64 float32"));
}

TEST(PlanTuning, LeavesOutRowsThatNoStepHas) {
  TuningRequest request = tuned_qwen3_600m();
  request.rows = {32768, 1024, 512};
  const auto tasks = described(plan_tuning(request, kGpu, all_rows));
  EXPECT_EQ(tasks.size(), 9U);
  EXPECT_EQ(tasks.front(), "qkv_proj 4096x1024 512 bfloat16");
  EXPECT_EQ(tasks.back(), "lm_head 151936x1024 512 float32");
}

TEST(PlanTuning, HasWhatCublasGets) {
  TuningRequest request = tuned_qwen3_600m();
  request.rows = {64, 4096, 8192};
  const auto tasks =
      plan_tuning(request, kGpu, [](const MatrixProduct& product, int64_t rows) -> int64_t {
        if (rows == 64) return 0;
        return product.is_gated ? 2048 : rows;
      });
  EXPECT_EQ(std::count_if(tasks.begin(), tasks.end(),
                          [](const TuningTask& task) { return task.name == "gate_up_proj"; }),
            1);
  EXPECT_EQ(tasks.size(), 7U);  // one of gate_up, no logits of so many rows
}

TEST(PlanTuning, HasAShapeOnce) {
  TuningRequest request = tuned_qwen3_600m();
  request.model.config.intermediate_size = 2048;  // o_proj and down_proj are alike
  request.rows = {64, 64};
  const auto tasks = described(plan_tuning(request, kGpu, all_rows));
  EXPECT_EQ(tasks.size(), 3U);
  EXPECT_EQ(tasks[0], "qkv_proj, gate_up_proj 4096x1024 64 bfloat16");
  EXPECT_EQ(tasks[1], "o_proj, down_proj 1024x2048 64 bfloat16");
}

TEST(PlanTuning, HasABiasWhereOneOfTheLayersHas) {
  TuningRequest request = tuned_qwen3_600m();
  request.model.config.architecture = "Qwen2ForCausalLM";
  request.model.config.intermediate_size = 2048;  // qkv_proj and gate_up_proj are alike
  const auto tasks = plan_tuning(request, kGpu, all_rows);
  ASSERT_EQ(tasks.size(), 3U);
  EXPECT_EQ(tasks[0].name, "qkv_proj, gate_up_proj");
  EXPECT_TRUE(tasks[0].has_bias);
  EXPECT_FALSE(tasks[1].has_bias);
  EXPECT_FALSE(tasks[2].has_bias);
}

TEST(PlanTuning, GoesOnToTheLargestStep) {
  TuningRequest request = tuned_qwen3_600m();
  request.rows.clear();
  request.max_step_tokens = 40000;
  request.max_logits_rows = 300;
  std::vector<int64_t> rows;
  std::vector<int64_t> logits_rows;
  for (const TuningTask& task : plan_tuning(request, kGpu, all_rows)) {
    if (task.name == "qkv_proj") rows.push_back(task.shape.rows);
    if (task.name == "lm_head") logits_rows.push_back(task.shape.rows);
  }
  EXPECT_THAT(rows, ElementsAre(64, 96, 128, 160, 192, 224, 256, 300, 512, 1024, 2048, 4096, 8192,
                                16384, 32768, 40000));
  EXPECT_EQ(logits_rows.back(), 300);
}

ops::LinearTrial trial(double seconds, double error = 0, bool repeats = true) {
  return {.algorithm = {}, .seconds = seconds, .error = error, .repeats = repeats};
}

size_t chosen(const std::vector<ops::LinearTrial>& trials, DType dtype = DType::kBFloat16) {
  return choose_trial(trials, dtype);
}

TEST(ChooseTrial, TakesTheFastestOfThoseThatAreRight) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(chosen({trial(1.0)}), 0U);
  EXPECT_EQ(chosen({trial(1.0), trial(0.9), trial(0.8), trial(1.1)}), 2U);
  EXPECT_EQ(chosen({trial(1.0), trial(0.5, 0.01), trial(0.6, kInfinity), trial(0.7, 0, false),
                    trial(0.9, 1e-3)}),
            4U);
  EXPECT_EQ(chosen({trial(1.0), trial(0.5, 1e-3)}, DType::kFloat32), 0U);
  EXPECT_EQ(chosen({trial(1.0), trial(0.5, 1e-6)}, DType::kFloat32), 1U);
}

TEST(ChooseTrial, KeepsTheFirstWhereAnotherIsHardlyFaster) {
  EXPECT_EQ(chosen({trial(1.0), trial(0.985)}), 0U);
  EXPECT_EQ(chosen({trial(1.0), trial(0.975)}), 1U);
}

TEST(DefaultTuneRows, AreTheDecodeLadderAndPowersOfTwo) {
  EXPECT_THAT(default_tune_rows(),
              ElementsAre(64, 96, 128, 160, 192, 224, 256, 512, 1024, 2048, 4096, 8192, 16384));
  // Which are all that there is to time with the engine's default settings.
  EXPECT_EQ(usual_tune_rows(16384, 512), default_tune_rows());
}

}  // namespace
}  // namespace quire
