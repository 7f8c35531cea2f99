#pragma once
// How byte-level tokenizers cut text into words, by the names that GGUF files use
// (tokenizer.ggml.pre): what the tokenizer.json of such a model contains.
//
// Thread safety: a free function without state.
#include <nlohmann/json.hpp>
#include <string_view>

namespace quire::tokenizer_internal {

struct WordPattern {
  nlohmann::json normalizer;  // null where there is none
  nlohmann::json pre_tokenizer;
  bool ignore_merges = false;  // a word that is a token as a whole is that token
  bool adds_bos = false;       // where nothing else is said
};

// Throws Error, listing the names that are known, for another one. An empty name is "default".
WordPattern word_pattern(std::string_view name);

}  // namespace quire::tokenizer_internal
