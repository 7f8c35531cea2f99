#include "loader/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temporary_folder_test_util.h"
#include "loader/checkpoint.h"
#include "quire/error.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path kGoldens =
    std::filesystem::path(QUIRE_SOURCE_DIR) / "tests" / "golden" / "models";

json qwen3() {
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"model_type", "qwen3"},
          {"vocab_size", 1000},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 32},
          {"max_position_embeddings", 4096},
          {"rope_theta", 1e6}};
}

json family(const char* architecture, const json& changes = json::object()) {
  json config = qwen3();
  config["architectures"] = {architecture};
  config.erase("head_dim");
  config.update(changes);
  return config;
}

json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

json without(json config, const char* field) {
  config.erase(field);
  return config;
}

ModelConfig parse(const json& config) {
  return parse_model_config(config.dump(), "config.json");
}

std::string error_of(const std::string& text) {
  try {
    parse_model_config(text, "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}
std::string error_of(const json& config) {
  return error_of(config.dump());
}

TEST(ModelConfigTest, ReadsEveryGoldenFolder) {
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldens)) {
    SCOPED_TRACE(entry.path().string());
    const ModelConfig config = load_model_config(entry.path());
    const Checkpoint checkpoint = Checkpoint::open(entry.path());
    const CheckpointTensor* embedding = checkpoint.find("model.embed_tokens.weight");
    ASSERT_NE(embedding, nullptr);
    EXPECT_THAT(embedding->shape, ElementsAre(config.vocab_size, config.hidden_size));
    const std::string attention = "model.layers.0.self_attn.";
    const bool is_fused = config.architecture == "Phi3ForCausalLM";
    const CheckpointTensor* q =
        checkpoint.find(attention + (is_fused ? "qkv_proj" : "q_proj") + ".weight");
    ASSERT_NE(q, nullptr);
    const int64_t heads =
        config.num_attention_heads + (is_fused ? 2 * config.num_key_value_heads : 0);
    EXPECT_THAT(q->shape, ElementsAre(heads * config.head_dim, config.hidden_size));
    EXPECT_EQ(checkpoint.find("lm_head.weight") == nullptr, config.tie_word_embeddings);
    const GenerationConfig generation = load_generation_config(entry.path());
    EXPECT_FALSE(generation.eos_token_ids.empty());
    std::ifstream file(entry.path() / "golden.json");
    EXPECT_LE(json::parse(file).at("max_model_len").get<int64_t>(),
              config.rope.type == RopeType::kDynamicNtk ? 256 : config.max_model_len());
    ++folders;
  }
  EXPECT_GE(folders, 25);
}

TEST(ModelConfigTest, FillsInDefaults) {
  const ModelConfig config = parse(qwen3());
  EXPECT_EQ(config.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.hidden_act, "silu");
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::kFloat32);
  EXPECT_EQ(config.rope.type, RopeType::kDefault);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.max_model_len(), 4096);
  EXPECT_THAT(config.layer_sliding_window, ElementsAre(0, 0, 0, 0));
}

TEST(ModelConfigTest, HeadSizesFollowTheFamily) {
  EXPECT_EQ(parse(without(qwen3(), "head_dim")).head_dim, 128);
  EXPECT_EQ(parse(with(qwen3(), {{"head_dim", nullptr}})).head_dim, 16);
  EXPECT_EQ(parse(family("LlamaForCausalLM")).head_dim, 16);
  EXPECT_EQ(parse(without(family("LlamaForCausalLM"), "num_key_value_heads")).num_key_value_heads,
            4);
  EXPECT_EQ(parse(with(qwen3(), {{"num_key_value_heads", nullptr}})).num_key_value_heads, 4);
  EXPECT_THAT(error_of(without(qwen3(), "num_key_value_heads")),
              HasSubstr("the field num_key_value_heads is missing"));
  EXPECT_THAT(error_of(with(qwen3(), {{"num_key_value_heads", 3}})),
              AllOf(HasSubstr("num_key_value_heads is 3"), HasSubstr("divisor")));
  EXPECT_THAT(error_of(with(qwen3(), {{"num_key_value_heads", 8}})), HasSubstr("from 1 to 4"));
  EXPECT_THAT(error_of(with(qwen3(), {{"head_dim", 33}})), HasSubstr("even"));
  EXPECT_THAT(error_of(family("LlamaForCausalLM", {{"hidden_size", 66}})),
              HasSubstr("hidden_size 66"));
}

TEST(ModelConfigTest, BothSpellingsSayTheSame) {
  const json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
  const ModelConfig old_spelling =
      parse(with(qwen3(), {{"rope_scaling", yarn}, {"torch_dtype", "bfloat16"}}));
  json newer = without(qwen3(), "rope_theta");
  newer["rope_parameters"] = with(yarn, {{"rope_theta", 1e6}});
  newer["dtype"] = "bfloat16";
  const ModelConfig new_spelling = parse(newer);
  EXPECT_TRUE(old_spelling.rope == new_spelling.rope);
  EXPECT_EQ(old_spelling.dtype, DType::kBFloat16);
  EXPECT_EQ(new_spelling.dtype, DType::kBFloat16);
  EXPECT_EQ(new_spelling.rope.type, RopeType::kYarn);
  EXPECT_EQ(new_spelling.rope.factor, 4.0);
  EXPECT_EQ(new_spelling.max_model_len(), 4096);
  // Both at once must agree.
  const json both = with(newer, {{"rope_scaling", yarn}, {"rope_theta", 1e6}});
  EXPECT_TRUE(parse(both).rope == new_spelling.rope);
  EXPECT_THAT(error_of(with(both, {{"rope_scaling", with(yarn, {{"factor", 2.0}})}})),
              HasSubstr("rope_parameters says otherwise"));
  EXPECT_THAT(error_of(with(newer, {{"rope_theta", 5.0}})),
              HasSubstr("rope_parameters.rope_theta"));
}

TEST(ModelConfigTest, CountsTheLengthAsVllmDoes) {
  const auto length = [](const json& rope) {
    return parse(with(qwen3(), {{"rope_scaling", rope}})).max_model_len();
  };
  EXPECT_EQ(length({{"type", "linear"}, {"factor", 2.5}}), 10240);
  EXPECT_EQ(length({{"type", "dynamic"}, {"factor", 2.0}}), 4096);
  EXPECT_EQ(length({{"type", "yarn"}, {"factor", 4.0}}), 16384);
  EXPECT_EQ(
      length({{"type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 512}}),
      4096);
  EXPECT_EQ(length({{"rope_type", "llama3"},
                    {"factor", 8.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 512}}),
            4096);
}

TEST(ModelConfigTest, ReadsYarnsFields) {
  const ModelConfig config = parse(with(qwen3(), {{"rope_parameters",
                                                   {{"rope_type", "yarn"},
                                                    {"factor", 8},
                                                    {"rope_theta", 1e6},
                                                    {"attention_factor", 0.9},
                                                    {"beta_fast", 16},
                                                    {"beta_slow", 2},
                                                    {"mscale", 1.5},
                                                    {"mscale_all_dim", 0},
                                                    {"truncate", false},
                                                    {"partial_rotary_factor", 0.5},
                                                    {"original_max_position_embeddings", 512}}}}));
  EXPECT_EQ(config.rope.attention_factor, 0.9);
  EXPECT_EQ(config.rope.beta_fast, 16.0);
  EXPECT_EQ(config.rope.beta_slow, 2.0);
  EXPECT_EQ(config.rope.mscale, 1.5);
  EXPECT_EQ(config.rope.mscale_all_dim, std::nullopt);
  EXPECT_FALSE(config.rope.truncate);
  EXPECT_EQ(config.rope.partial_rotary_factor, 0.5);
  EXPECT_EQ(config.rope.original_max_position_embeddings, 512);
}

TEST(ModelConfigTest, TakesOneRopeForAllTypesOfLayer) {
  const json one = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  const ModelConfig config = parse(
      with(qwen3(), {{"rope_parameters", {{"full_attention", one}, {"sliding_attention", one}}}}));
  EXPECT_EQ(config.rope.theta, 1e6);
  const json other = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 1e6}};
  EXPECT_THAT(error_of(with(qwen3(), {{"rope_parameters",
                                       {{"full_attention", one}, {"sliding_attention", other}}}})),
              HasSubstr("each type of layer is not supported"));
  EXPECT_THAT(error_of(with(qwen3(), {{"rope_parameters", {{"full_attention", nullptr}}}})),
              HasSubstr("without RoPE"));
}

TEST(ModelConfigTest, RefusesRopeItCannotDo) {
  const auto error = [](const json& rope) {
    return error_of(with(qwen3(), {{"rope_scaling", rope}}));
  };
  EXPECT_THAT(error({{"rope_type", "proportional"}, {"factor", 4.0}}),
              AllOf(HasSubstr("rope_scaling.rope_type is \"proportional\""),
                    HasSubstr("default, linear, dynamic, yarn, llama3, longrope")));
  EXPECT_THAT(error({{"type", "mrope"}}), HasSubstr("rope_scaling.type is \"mrope\""));
  EXPECT_THAT(error({{"type", "default"}, {"mrope_section", {1, 2}}}), HasSubstr("mrope_section"));
  EXPECT_THAT(error({{"type", "linear"}, {"rope_type", "yarn"}, {"factor", 2}}),
              HasSubstr("the same as rope_type"));
  EXPECT_THAT(error({{"type", "linear"}}), HasSubstr("rope_scaling.factor is missing"));
  EXPECT_THAT(error({{"type", "linear"}, {"factor", 0.5}}), HasSubstr("factor is 0.5"));
  EXPECT_THAT(error({{"type", "linear"}, {"factor", "2"}}), HasSubstr("factor is \"2\""));
  EXPECT_THAT(error({{"type", "yarn"}, {"factor", 4}, {"beta_fast", 1}, {"beta_slow", 2}}),
              HasSubstr("below beta_slow"));
  EXPECT_THAT(
      error({{"type", "dynamic"}, {"factor", 4}, {"original_max_position_embeddings", 100}}),
      HasSubstr("max_position_embeddings (4096)"));
  EXPECT_THAT(error({{"rope_type", "llama3"},
                     {"factor", 8},
                     {"low_freq_factor", 4},
                     {"high_freq_factor", 1}}),
              HasSubstr("more than low_freq_factor"));
  EXPECT_THAT(error("yarn"), HasSubstr("rope_scaling is \"yarn\"; expected an object"));
  EXPECT_THAT(error_of(with(qwen3(), {{"partial_rotary_factor", 0.1}})),
              HasSubstr("rotates 3 of the 32"));
  EXPECT_THAT(error_of(with(qwen3(), {{"partial_rotary_factor", 1.5}})),
              HasSubstr("from 1e-09 to 1"));
  EXPECT_THAT(error_of(with(qwen3(), {{"rope_theta", 0}})), HasSubstr("rope_theta is 0"));
}

// Phi-4-mini's fields, smaller: 24 of a head's 32 elements are rotated.
json longrope(size_t num_short = 12, size_t num_long = 12) {
  return {{"type", "longrope"},
          {"short_factor", std::vector<double>(num_short, 1.0)},
          {"long_factor", std::vector<double>(num_long, 40.5)}};
}

TEST(ModelConfigTest, ReadsLongRope) {
  const json phi = with(qwen3(), {{"architectures", {"Phi3ForCausalLM"}},
                                  {"partial_rotary_factor", 0.75},
                                  {"original_max_position_embeddings", 1024},
                                  {"rope_scaling", longrope()}});
  const ModelConfig config = parse(phi);
  EXPECT_EQ(config.rope.type, RopeType::kLongRope);
  EXPECT_EQ(config.rope.short_factor, std::vector<double>(12, 1.0));
  EXPECT_EQ(config.rope.long_factor, std::vector<double>(12, 40.5));
  EXPECT_EQ(config.rope.original_max_position_embeddings, 1024);
  // How much longer the model is than the original.
  EXPECT_EQ(config.rope.factor, 4.0);
  EXPECT_EQ(config.rope.attention_factor, std::nullopt);
  EXPECT_EQ(config.max_model_len(), 4096);
  EXPECT_TRUE(parse(with(phi, {{"rope_scaling", with(longrope(), {{"type", "su"}})}})).rope ==
              config.rope);
  const json given = with(longrope(), {{"factor", 8}, {"attention_factor", 1.25}});
  EXPECT_EQ(parse(with(phi, {{"rope_scaling", given}})).rope.factor, 8.0);
  EXPECT_EQ(parse(with(phi, {{"rope_scaling", given}})).rope.attention_factor, 1.25);

  const auto error = [&](const json& rope) {
    return error_of(with(phi, {{"rope_scaling", rope}}));
  };
  EXPECT_THAT(error(longrope(16)), HasSubstr("rope_scaling.short_factor has 16 numbers; expected "
                                             "12"));
  EXPECT_THAT(error(longrope(12, 11)), HasSubstr("rope_scaling.long_factor has 11 numbers"));
  EXPECT_THAT(error(without(longrope(), "long_factor")), HasSubstr("long_factor is missing"));
  EXPECT_THAT(error(with(longrope(), {{"long_factor", {1, "2"}}})),
              HasSubstr("long_factor holds \"2\""));
  EXPECT_THAT(error(with(longrope(), {{"long_factor", {1, 0}}})), HasSubstr("long_factor holds 0"));
  EXPECT_THAT(error(with(longrope(), {{"long_factor", 2}})),
              HasSubstr("expected a list of numbers"));
  EXPECT_THAT(error_of(without(phi, "original_max_position_embeddings")),
              HasSubstr("original_max_position_embeddings is missing"));
}

TEST(ModelConfigTest, SlidingWindowsOfQwen) {
  const json sliding = with(
      qwen3(), {{"use_sliding_window", true}, {"sliding_window", 100}, {"max_window_layers", 3}});
  EXPECT_THAT(parse(sliding).layer_sliding_window, ElementsAre(0, 0, 0, 100));
  EXPECT_THAT(parse(with(sliding, {{"max_window_layers", 28}})).layer_sliding_window,
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(parse(with(sliding, {{"use_sliding_window", false}})).layer_sliding_window,
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(parse(without(sliding, "use_sliding_window")).layer_sliding_window,
              ElementsAre(0, 0, 0, 0));
  const json types = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(parse(with(sliding, {{"layer_types", types}})).layer_sliding_window,
              ElementsAre(100, 0, 100, 0));
  EXPECT_THAT(error_of(with(sliding, {{"layer_types", types}, {"use_sliding_window", false}})),
              HasSubstr("give no window"));
  EXPECT_THAT(error_of(with(sliding, {{"layer_types", {"full_attention"}}})),
              HasSubstr("one for each of the 4 layers"));
  EXPECT_THAT(error_of(with(sliding, {{"layer_types", {"full_attention", "a", "b", "c"}}})),
              HasSubstr("holds \"a\""));
  EXPECT_THAT(error_of(without(sliding, "sliding_window")), HasSubstr("sliding_window is missing"));
  EXPECT_THAT(error_of(without(sliding, "max_window_layers")),
              HasSubstr("max_window_layers is missing"));
}

TEST(ModelConfigTest, SlidingWindowOfMistral) {
  const auto windows = [](const json& changes) {
    return parse(family("MistralForCausalLM", changes)).layer_sliding_window;
  };
  EXPECT_THAT(windows({{"sliding_window", 64}}), ElementsAre(64, 64, 64, 64));
  EXPECT_THAT(windows({{"sliding_window", nullptr}}), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(windows(json::object()), ElementsAre(4096, 4096, 4096, 4096));
}

TEST(ModelConfigTest, LlamaHasNoSlidingWindow) {
  EXPECT_THAT(parse(family("LlamaForCausalLM", {{"sliding_window", nullptr}})).layer_sliding_window,
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(error_of(family("LlamaForCausalLM", {{"sliding_window", 64}})),
              AllOf(HasSubstr("sliding_window is 64"), HasSubstr("LlamaForCausalLM has no")));
}

TEST(ModelConfigTest, RefusesWhatIsMissingOrAbsurd) {
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "max_position_embeddings"}) {
    SCOPED_TRACE(field);
    const std::string name = std::string("the field ") + field;
    EXPECT_THAT(error_of(without(qwen3(), field)), AllOf(HasSubstr(name), HasSubstr("missing")));
    for (const json& value : {json(0), json(-1), json(2.5), json("64"), json(true),
                              json(json::array()), json(UINT64_MAX), json(1e300)}) {
      EXPECT_THAT(
          error_of(with(qwen3(), {{field, value}})),
          AllOf(HasSubstr("config.json: "), HasSubstr(name), HasSubstr("expected an integer")));
    }
  }
  EXPECT_THAT(error_of(without(qwen3(), "architectures")), HasSubstr("the field architectures"));
  EXPECT_THAT(error_of(with(qwen3(), {{"architectures", {7}}})), HasSubstr("a list of strings"));
  EXPECT_THAT(error_of(with(qwen3(), {{"rms_norm_eps", -1}})), HasSubstr("rms_norm_eps is -1"));
  EXPECT_THAT(error_of(with(qwen3(), {{"tie_word_embeddings", 1}})), HasSubstr("true or false"));
  EXPECT_THAT(error_of(with(qwen3(), {{"torch_dtype", "int8"}})),
              HasSubstr("torch_dtype is \"int8\""));
  EXPECT_THAT(error_of(with(qwen3(), {{"quantization_config", {{"bits", 4}}}})),
              HasSubstr("quantization_config"));
  EXPECT_THAT(error_of(with(qwen3(), {{"is_encoder_decoder", true}})),
              HasSubstr("is_encoder_decoder"));
}

TEST(ModelConfigTest, RefusesBytesThatAreNoConfig) {
  EXPECT_THAT(error_of(std::string()), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(std::string("{\"a\": ")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(std::string("[1]")), HasSubstr("expected a JSON object"));
  EXPECT_THAT(error_of(std::string("{\"a\":1,\"a\":2}")), HasSubstr("field \"a\" is given twice"));
  EXPECT_THAT(error_of(std::string("{\"a\":\"\xff\"}")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{\"a\":" + std::string(1'000'000, '[')),
              HasSubstr("nested deeper than 32"));
}

class ConfigFolderTest : public testing::Test {
 protected:
  void write(const char* name, const json& value) { std::ofstream(folder_ / name) << value.dump(); }
  std::string generation_error() {
    try {
      load_generation_config(folder_);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(ConfigFolderTest, GenerationConfigComesBeforeTheModels) {
  write("config.json", with(qwen3(), {{"eos_token_id", 7}, {"bos_token_id", 5}}));
  EXPECT_THAT(load_generation_config(folder_).eos_token_ids, ElementsAre(7));
  EXPECT_EQ(load_generation_config(folder_).bos_token_id, 5);
  EXPECT_EQ(load_generation_config(folder_).temperature, std::nullopt);
  write("generation_config.json", {{"eos_token_id", {8, 9}},
                                   {"do_sample", true},
                                   {"temperature", 0.6},
                                   {"top_k", 20},
                                   {"top_p", 0.95},
                                   {"min_p", nullptr},
                                   {"repetition_penalty", 1.1},
                                   {"max_new_tokens", 2048}});
  const GenerationConfig config = load_generation_config(folder_);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(8, 9));
  EXPECT_EQ(config.bos_token_id, 5);
  EXPECT_EQ(config.do_sample, true);
  EXPECT_EQ(config.temperature, 0.6);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, 0.95);
  EXPECT_EQ(config.min_p, std::nullopt);
  EXPECT_EQ(config.repetition_penalty, 1.1);
  EXPECT_EQ(config.max_new_tokens, 2048);
}

TEST_F(ConfigFolderTest, SaysWhatIsWrongWithTheGenerationConfig) {
  write("config.json", qwen3());
  write("generation_config.json", {{"temperature", -1}});
  EXPECT_THAT(generation_error(),
              AllOf(HasSubstr("generation_config.json"), HasSubstr("temperature is -1")));
  // What no request may ask for is no default.
  write("generation_config.json", {{"temperature", 101}});
  EXPECT_THAT(generation_error(),
              AllOf(HasSubstr("generation_config.json"), HasSubstr("temperature is 101")));
  write("generation_config.json", {{"top_p", 0}});
  EXPECT_THAT(generation_error(), AllOf(HasSubstr("top_p is 0"), HasSubstr("above 0")));
  write("generation_config.json", {{"repetition_penalty", 0}});
  EXPECT_THAT(generation_error(), HasSubstr("repetition_penalty is 0"));
  write("generation_config.json", {{"repetition_penalty", 10.5}});
  EXPECT_THAT(generation_error(), HasSubstr("repetition_penalty is 10.5"));
  write("generation_config.json", {{"eos_token_id", {1, "2"}}});
  EXPECT_THAT(generation_error(), HasSubstr("eos_token_id is \"2\""));
}

TEST_F(ConfigFolderTest, SaysWhereItLooked) {
  EXPECT_THAT(generation_error(), HasSubstr((folder_ / "config.json").string()));
  std::filesystem::remove(folder_);
  EXPECT_THAT(generation_error(), HasSubstr("there is nothing"));
}

}  // namespace
}  // namespace quire
