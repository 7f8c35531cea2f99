#include "cli/options/speculative_option.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/usage_error.h"

namespace quire::cli {
namespace {

TEST(SpeculativeOption, ReadsEveryField) {
  const SpeculativeConfig config = parse_speculative_config(
      R"({"method": "suffix", "num_speculative_tokens": 5, "prompt_lookup_min": 2,
          "prompt_lookup_max": null, "suffix_decoding_max_tree_depth": 32,
          "suffix_decoding_max_cached_requests": 7, "suffix_decoding_max_spec_factor": 2,
          "suffix_decoding_min_token_prob": 0.25, "model": "org/draft", "quantization": "int4",
          "draft_tensor_parallel_size": 2, "adaptive": false})");
  EXPECT_EQ(config.method, "suffix");
  EXPECT_EQ(config.num_speculative_tokens, 5);
  EXPECT_EQ(config.prompt_lookup_min, 2);
  EXPECT_EQ(config.prompt_lookup_max, std::nullopt);
  EXPECT_EQ(config.suffix_decoding_max_tree_depth, 32);
  EXPECT_EQ(config.suffix_decoding_max_cached_requests, 7);
  EXPECT_EQ(config.suffix_decoding_max_spec_factor, 2);
  EXPECT_EQ(config.suffix_decoding_min_token_prob, 0.25);
  EXPECT_EQ(config.model, "org/draft");
  EXPECT_EQ(config.quantization, "int4");
  EXPECT_EQ(config.draft_tensor_parallel_size, 2);
  EXPECT_FALSE(config.adaptive);
}

TEST(SpeculativeOption, AModelsNameIsEnough) {
  const auto method_of = [](const std::string& model) {
    return parse_speculative_config(R"({"num_speculative_tokens": 3, "model": ")" + model + "\"}")
        .method;
  };
  EXPECT_EQ(method_of("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"), "eagle3");
  EXPECT_EQ(method_of("models/lexicon-eagle3/"), "eagle3");
  EXPECT_EQ(method_of("yuhuili/EAGLE-LLaMA3-Instruct-8B"), "eagle");
  EXPECT_EQ(method_of("/of/eagles/Qwen3-0.6B"), "draft_model");
  EXPECT_EQ(method_of("Qwen/Qwen3-0.6B"), "draft_model");
}

struct BadText {
  std::string text;
  std::string sentence;
};

TEST(SpeculativeOption, SaysWhatIsWrong) {
  const std::vector<BadText> texts = {
      {R"([])", "--speculative-config: expected a JSON object, got an array"},
      {R"({})",
       "--speculative-config: there is no method; expected an object like {\"method\": \"ngram\"}"},
      {R"({"method": 3})", "--speculative-config: method is 3; expected a string"},
      {R"({"method": "ngram", "num_speculative_tokens": "4"})",
       "--speculative-config: num_speculative_tokens is a string; expected an integer"},
      {R"({"method": "ngram", "num_speculative_tokens": 4.5})",
       "--speculative-config: num_speculative_tokens is 4.5; expected an integer"},
      {R"({"method": "suffix", "suffix_decoding_min_token_prob": true})",
       "--speculative-config: suffix_decoding_min_token_prob is true; expected a number"},
      {R"({"method": "ngram", "synthetic_acceptance_length": "long"})",
       "--speculative-config: synthetic_acceptance_length is a string; expected a number"},
      {R"({"method": "ngram", "rejection_sample_method": "strict"})",
       "--speculative-config: there is no field \"rejection_sample_method\"; expected method, "
       "num_speculative_tokens, adaptive, synthetic_acceptance_length, prompt_lookup_min, "
       "prompt_lookup_max, "
       "suffix_decoding_max_tree_depth, suffix_decoding_max_cached_requests, "
       "suffix_decoding_max_spec_factor, suffix_decoding_min_token_prob, model, quantization, "
       "draft_tensor_parallel_size"},
  };
  for (const BadText& bad : texts) {
    try {
      parse_speculative_config(bad.text);
      ADD_FAILURE() << bad.text;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()), bad.sentence);
    }
  }
  EXPECT_THROW(parse_speculative_config("{"), UsageError);
}

// The engine refuses what is out of range; here it only must not become another number.
TEST(SpeculativeOption, NumbersBeyondEveryRangeStayThere) {
  const SpeculativeConfig config = parse_speculative_config(
      R"({"method": "ngram", "num_speculative_tokens": 4294967298, "prompt_lookup_min": -4294967298})");
  EXPECT_LT(config.prompt_lookup_min, 0);
  EXPECT_EQ(config.num_speculative_tokens, 2147483647);
}

}  // namespace
}  // namespace quire::cli
