// Which of a checkpoint's tensors are the scales of a KV cache, and which of them a rank takes.
#include "layers/kv_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/temporary_folder_test_util.h"
#include "loader/checkpoint.h"
#include "loader/safetensors_test_util.h"
#include "loader/weight_loader.h"
#include "quire/error.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kKvHeads = 4;

// The scales of one layer; empty: none.
struct LayerScales {
  std::vector<float> keys;
  std::vector<float> values;
};

std::vector<float> numbers_at(const float* scales, int count) {
  return scales == nullptr ? std::vector<float>() : std::vector<float>(scales, scales + count);
}

// What a rank makes of these tensors, whose names follow "model.layers.0.self_attn.".
LayerScales load(std::vector<FileTensor> tensors, ParallelRank at = {}) {
  const TemporaryFolder temporary;
  for (FileTensor& tensor : tensors) tensor.name.insert(0, "model.layers.0.self_attn.");
  std::ofstream(temporary.path() / "config.json") << "{}";
  std::ofstream(temporary.path() / "model.safetensors", std::ios::binary)
      << to_safetensors(tensors);
  const Checkpoint checkpoint = Checkpoint::open(temporary.path());
  Placement place;
  place.at = at;
  KvScales scales(place, kKvHeads);
  ParameterMap parameters(
      {{"q_proj", {"qkv_proj", 0}}, {"k_proj", {"qkv_proj", 1}}, {"v_proj", {"qkv_proj", 2}}});
  parameters.add("model.layers.0.self_attn", scales);
  check_weights(checkpoint, parameters);
  ThreadPool pool(2);
  load_weights(checkpoint, parameters, pool, {});
  const KvCacheView view = scales.applied_to({});
  const auto heads = static_cast<int>(kv_heads_of_rank(kKvHeads, at.size));
  return {numbers_at(view.key_scales, heads), numbers_at(view.value_scales, heads)};
}

std::string error_of(const std::vector<FileTensor>& tensors) {
  try {
    load(tensors);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

FileTensor number(const std::string& name, float value) {
  return {name, "F32", {}, bytes_of(std::vector<float>{value})};
}

FileTensor heads(const std::string& name, const std::vector<int64_t>& shape = {kKvHeads}) {
  return {name, "F32", shape, bytes_of(std::vector<float>{0.5f, 1.5f, 2.5f, 3.5f})};
}

TEST(KvScales, AreOneWhereACheckpointHasNone) {
  const LayerScales scales = load({});
  EXPECT_THAT(scales.keys, IsEmpty());
  EXPECT_THAT(scales.values, IsEmpty());
}

TEST(KvScales, HaveTheNamesThatToolsWrite) {
  for (const std::string of : {"", "attn.", "qkv_proj."}) {
    const LayerScales scales = load({number(of + "k_scale", 0.25f), number(of + "v_scale", 3)});
    EXPECT_THAT(scales.keys, ElementsAre(0.25f, 0.25f, 0.25f, 0.25f)) << of;
    EXPECT_THAT(scales.values, ElementsAre(3, 3, 3, 3)) << of;
  }
  for (const char* leaf : {"scale", "output"}) {
    const bool is_output = leaf == std::string("output");
    const LayerScales scales =
        load({number(is_output ? "k_proj.output_scale" : "k_proj.k_scale", 0.25f),
              number(is_output ? "v_proj.output_scale" : "v_proj.v_scale", 3)});
    EXPECT_THAT(scales.keys, ElementsAre(0.25f, 0.25f, 0.25f, 0.25f)) << leaf;
    EXPECT_THAT(scales.values, ElementsAre(3, 3, 3, 3)) << leaf;
  }
  const LayerScales both = load({number("kv_scale", 0.75f)});
  EXPECT_THAT(both.keys, ElementsAre(0.75f, 0.75f, 0.75f, 0.75f));
  EXPECT_EQ(both.values, both.keys);
}

TEST(KvScales, TheFirstOfSeveralNamesCounts) {
  const LayerScales scales = load({number("kv_scale", 9), number("k_proj.output_scale", 8),
                                   number("k_proj.k_scale", 7), number("k_scale", 6)});
  EXPECT_THAT(scales.keys, ElementsAre(6, 6, 6, 6));
  EXPECT_THAT(scales.values, ElementsAre(9, 9, 9, 9));
}

TEST(KvScales, AKindThatIsMissingIsOne) {
  const LayerScales scales = load({number("v_scale", 3)});
  EXPECT_THAT(scales.keys, IsEmpty());
  EXPECT_THAT(scales.values, ElementsAre(3, 3, 3, 3));
}

TEST(KvScales, ARankTakesThoseOfItsHeads) {
  const std::vector<FileTensor> tensors = {heads("k_scale"), heads("v_scale", {kKvHeads, 1, 1})};
  const LayerScales all = load(tensors);
  EXPECT_THAT(all.keys, ElementsAre(0.5f, 1.5f, 2.5f, 3.5f));
  EXPECT_EQ(all.values, all.keys);
  EXPECT_THAT(load(tensors, {.rank = 1, .size = 2}).keys, ElementsAre(2.5f, 3.5f));
  EXPECT_THAT(load(tensors, {.rank = 1, .size = 2}).values, ElementsAre(2.5f, 3.5f));
  EXPECT_THAT(load(tensors, {.rank = 5, .size = 8}).keys, ElementsAre(2.5f));
}

TEST(KvScales, AreOfAnyFloatType) {
  const LayerScales scales =
      load({{"k_scale", "BF16", {1}, bytes_of(std::vector<BFloat16>{BFloat16(0.375f)})},
            {"v_scale", "F16", {1, 1}, bytes_of(std::vector<Float16>{Float16(0.625f)})}});
  EXPECT_THAT(scales.keys, ElementsAre(0.375f, 0.375f, 0.375f, 0.375f));
  EXPECT_THAT(scales.values, ElementsAre(0.625f, 0.625f, 0.625f, 0.625f));
}

TEST(KvScales, BadOnesAreNamed) {
  const std::string name = "the tensor model.layers.0.self_attn.k_scale";
  for (const float value : {0.0f, -1.0f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    const std::string error = error_of({number("k_scale", value)});
    EXPECT_THAT(error, HasSubstr(name)) << value;
    EXPECT_THAT(error, HasSubstr("expected scales that are finite and more than zero.")) << value;
  }
  const BFloat16 negative(-1.0f);
  EXPECT_THAT(error_of({{"k_scale", "BF16", {}, bytes_of(std::vector<BFloat16>{negative})}}),
              HasSubstr("more than zero"));
  const std::string shape =
      error_of({{"k_scale", "F32", {3}, bytes_of(std::vector<float>{1, 2, 3})}});
  EXPECT_THAT(shape, HasSubstr(name));
  EXPECT_THAT(shape, HasSubstr("expected one number, or 4 by config.json."));
  const std::vector<float> sixteen(16, 1.0f);
  EXPECT_THAT(error_of({{"k_scale", "F32", {4, 4}, bytes_of(sixteen)}}),
              HasSubstr("expected one number, or 4"));
  const std::string dtype = error_of({{"k_scale", "I32", {}, bytes_of(std::vector<int32_t>{1})}});
  EXPECT_THAT(dtype, HasSubstr(name));
  EXPECT_THAT(dtype, HasSubstr("expected F32, F16 or BF16"));
}

}  // namespace
}  // namespace quire
