#pragma once
// Reads tokenizer.json and tokenizer_config.json into their parts, without interpreting the small
// ones. Errors: quire::Error with the file, the field and what was expected.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"

namespace quire::tokenizer_internal {

struct TokenizerFile {
  Vocabulary vocabulary;
  MergeTable merges;
  BpeOptions options;
  std::vector<AddedToken> added_tokens;
  nlohmann::json normalizer;  // null where there is none, as the others
  nlohmann::json pre_tokenizer;
  nlohmann::json post_processor;
  nlohmann::json decoder;
};

TokenizerFile read_tokenizer_file(std::string_view text);

struct TokenizerConfig {
  std::string bos_token;  // "" where there is none
  std::string eos_token;
  // Whether BOS or EOS goes around a text; nullopt: what tokenizer.json says.
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
};

// Empty text stands for a missing file.
TokenizerConfig read_tokenizer_config(std::string_view text);

}  // namespace quire::tokenizer_internal
