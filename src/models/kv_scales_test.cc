// A float8 KV cache with a checkpoint's scales, beside one that loses nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temporary_folder_test_util.h"
#include "loader/checkpoint.h"
#include "loader/safetensors_test_util.h"
#include "loader/weight_loader.h"
#include "models/run_for_test.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Keys and values are this many times as large as in the golden model, which computes the same:
// queries and the output projection make up for it.
constexpr float kLarger = 4096.0f;

// tests/golden/quantised/fp8-tensor with keys and values that float8 does not hold.
class LargeKeysModel {
 public:
  explicit LargeKeysModel(const std::vector<float>& key_scales,
                          const std::vector<float>& value_scales) {
    const fs::path golden = fs::path(QUIRE_SOURCE_DIR) / "tests/golden/quantised/fp8-tensor";
    fs::copy(golden / "config.json", temporary_.path() / "config.json");
    const Checkpoint checkpoint = Checkpoint::open(golden);
    std::vector<FileTensor> tensors;
    for (const CheckpointTensor& tensor : checkpoint.tensors()) {
      const float factor = factor_of(tensor.name);
      if (factor == 1) {
        tensors.push_back({tensor.name, tensor.dtype, tensor.shape,
                           std::string(reinterpret_cast<const char*>(tensor.data), tensor.bytes)});
        continue;
      }
      std::vector<float> numbers =
          tensor.dtype == "F16" ? floats_of<Float16>(tensor) : floats_of<float>(tensor);
      for (float& number : numbers) number *= factor;
      tensors.push_back({tensor.name, "F32", tensor.shape, bytes_of(numbers)});
    }
    for (int layer = 0; layer < 2; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer) + ".self_attn.";
      add_scales(name + "k_scale", key_scales, tensors);
      add_scales(name + "v_scale", value_scales, tensors);
    }
    std::ofstream(temporary_.path() / "model.safetensors", std::ios::binary)
        << to_safetensors(tensors);
  }

  std::vector<std::vector<float>> logits(DType cache, int ranks = 1, bool has_scales = true) const {
    ModelOptions options;
    options.config = load_model_config(temporary_.path());
    options.max_model_len = 64;
    options.has_kv_scales = has_scales && cache == DType::kFloat8E4M3;
    const Checkpoint checkpoint = Checkpoint::open(temporary_.path());
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 40; ++i) tokens.push_back((17 * i + 5 * i * i + 3) % 96);
    const auto fill = [&](const ParameterMap& parameters, ThreadPool& pool) {
      load_weights(checkpoint, parameters, pool, {});
    };
    return run_prompt(options, {.size = ranks, .kv_cache_dtype = cache}, fill, tokens)[0].logits;
  }

 private:
  // Of a layer's scale, or bias.
  static float factor_of(const std::string& name) {
    if (!name.ends_with(".weight_scale") && !name.ends_with(".bias")) return 1;
    const auto is_of = [&name](const char* module) { return name.find(module) < name.size(); };
    if (is_of("k_proj") || is_of("v_proj")) return kLarger;
    return is_of("q_proj") || is_of("o_proj") ? 1 / kLarger : 1;
  }

  template <typename T>
  static std::vector<float> floats_of(const CheckpointTensor& tensor) {
    std::vector<T> values(tensor.bytes / sizeof(T));
    std::memcpy(values.data(), tensor.data, tensor.bytes);
    std::vector<float> floats;
    for (const T value : values) floats.push_back(static_cast<float>(value));
    return floats;
  }

  static void add_scales(const std::string& name, const std::vector<float>& scales,
                         std::vector<FileTensor>& tensors) {
    if (scales.empty()) return;
    std::vector<int64_t> shape;
    if (scales.size() > 1) shape.push_back(static_cast<int64_t>(scales.size()));
    tensors.push_back({name, "F32", shape, bytes_of(scales)});
  }

  TemporaryFolder temporary_;
};

// Elements are off by up to a 16th of themselves, or an 8th, in each of the model's two layers.
constexpr double kE4M3Tolerance = 2.0 / 16;
constexpr double kE5M2Tolerance = 2.0 / 8;

// The greatest difference, as a share of the greatest logit.
double distance(const std::vector<std::vector<float>>& actual,
                const std::vector<std::vector<float>>& expected) {
  double largest = 0;
  double difference = 0;
  EXPECT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    for (size_t j = 0; j < expected[i].size(); ++j) {
      largest = std::max(largest, std::abs(double{expected[i][j]}));
      difference = std::max(difference, std::abs(double{actual[i][j]} - expected[i][j]));
    }
  }
  return difference / largest;
}

TEST(KvScalesOfModels, KeepWhatFloat8WouldCutOff) {
  const LargeKeysModel model({100.0f}, {60.0f});
  const auto exact = model.logits(DType::kFloat32);
  const double with_scales = distance(model.logits(DType::kFloat8E4M3), exact);
  const double without = distance(model.logits(DType::kFloat8E4M3, 1, false), exact);
  EXPECT_LT(with_scales, kE4M3Tolerance);
  EXPECT_GT(without, 5 * with_scales);
  EXPECT_LT(distance(model.logits(DType::kFloat8E5M2), exact), kE5M2Tolerance);
}

TEST(KvScalesOfModels, RanksTakeThoseOfTheirHeads) {
  const LargeKeysModel model({100.0f, 71.0f}, {60.0f, 91.0f});
  const LargeKeysModel exchanged({71.0f, 100.0f}, {91.0f, 60.0f});
  const auto alone = model.logits(DType::kFloat8E4M3);
  EXPECT_LT(distance(model.logits(DType::kFloat8E4M3, 2), alone), 2e-5);
  EXPECT_GT(distance(exchanged.logits(DType::kFloat8E4M3), alone), 1e-4);
  EXPECT_LT(distance(alone, model.logits(DType::kFloat32)), kE4M3Tolerance);
}

TEST(KvScalesOfModels, ArePassedOverByOtherCaches) {
  const LargeKeysModel model({100.0f}, {60.0f});
  const LargeKeysModel plain({}, {});
  EXPECT_EQ(model.logits(DType::kFloat32), plain.logits(DType::kFloat32));
  EXPECT_EQ(model.logits(DType::kFloat8E5M2), plain.logits(DType::kFloat8E5M2));
}

}  // namespace
}  // namespace quire
