#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "quire/error.h"
#include "speculative/proposer.h"

namespace quire {
namespace {

struct BadField {
  std::function<void(SpeculativeConfig&)> set;
  std::string sentence;
};

std::string refusal(const SpeculativeConfig& config) {
  try {
    check_speculative_config(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

SpeculativeConfig usual(const char* method) {
  SpeculativeConfig config;
  config.method = method;
  return config;
}

TEST(SpeculativeConfig, DefaultsAreInRange) {
  EXPECT_EQ(refusal(usual("ngram")), "");
  EXPECT_EQ(refusal(usual("suffix")), "");
}

TEST(SpeculativeConfig, OneLengthIsBoth) {
  SpeculativeConfig config = usual("ngram");
  EXPECT_EQ(ngram_lengths(config).min, 5);
  EXPECT_EQ(ngram_lengths(config).max, 5);
  config.prompt_lookup_max = 3;
  EXPECT_EQ(ngram_lengths(config).min, 3);
  config.prompt_lookup_min = 2;
  EXPECT_EQ(ngram_lengths(config).min, 2);
  EXPECT_EQ(ngram_lengths(config).max, 3);
  config.prompt_lookup_max.reset();
  EXPECT_EQ(ngram_lengths(config).max, 2);
}

TEST(SpeculativeConfig, WhatIsOutOfRangeIsNamed) {
  using Config = SpeculativeConfig;
  const std::vector<BadField> fields = {
      {[](Config& c) { c.method = "medusa"; },
       "method is \"medusa\"; expected \"ngram\", \"suffix\", \"draft_model\", \"eagle\" or "
       "\"eagle3\", the methods that quire takes."},
      {[](Config& c) { c.method = "eagle"; },
       "model is missing; expected a folder or a name, of a head for the model."},
      {[](Config& c) { c.num_speculative_tokens = 0; },
       "num_speculative_tokens is 0; expected 1 to 16."},
      {[](Config& c) { c.num_speculative_tokens = 17; },
       "num_speculative_tokens is 17; expected 1 to 16."},
      {[](Config& c) { c.prompt_lookup_min = 0; }, "prompt_lookup_min is 0; expected 1 to 32."},
      {[](Config& c) {
         c.prompt_lookup_min = 2;
         c.prompt_lookup_max = 33;
       },
       "prompt_lookup_max is 33; expected 1 to 32."},
      {[](Config& c) {
         c.prompt_lookup_min = 4;
         c.prompt_lookup_max = 3;
       },
       "prompt_lookup_min is 4; expected at most prompt_lookup_max, which is 3."},
      {[](Config& c) { c.suffix_decoding_max_tree_depth = 1; },
       "suffix_decoding_max_tree_depth is 1; expected 2 to 256."},
      {[](Config& c) { c.suffix_decoding_max_cached_requests = -1; },
       "suffix_decoding_max_cached_requests is -1; expected 0 to 1000000."},
      {[](Config& c) { c.suffix_decoding_max_spec_factor = 0; },
       "suffix_decoding_max_spec_factor is 0; expected a number above 0 and up to 100."},
      {[](Config& c) { c.suffix_decoding_min_token_prob = 1.5; },
       "suffix_decoding_min_token_prob is 1.5; expected a number from 0 to 1."},
      {[](Config& c) { c.model = "org/draft"; },
       "model is \"org/draft\"; expected none with method \"ngram\"; \"draft_model\", "
       "\"eagle\" and \"eagle3\" take one."},
      {[](Config& c) { c.method = "draft_model"; },
       "model is missing; expected a folder, a GGUF file or a name, of a smaller model with the "
       "same "
       "vocabulary."},
      {[](Config& c) { c.quantization = "int2"; },
       "quantization is \"int2\"; expected none, fp8, int8 or int4."},
      {[](Config& c) { c.quantization = "int8"; },
       "quantization is \"int8\"; expected none with method \"ngram\", which drafts without a "
       "model."},
      {[](Config& c) { c.draft_tensor_parallel_size = 7; },
       "draft_tensor_parallel_size is 7; expected none with method \"ngram\", which drafts without "
       "a model."},
  };
  for (const BadField& field : fields) {
    SpeculativeConfig config = usual("ngram");
    field.set(config);
    EXPECT_EQ(refusal(config), "--speculative-config: " + field.sentence);
  }
}

}  // namespace
}  // namespace quire
