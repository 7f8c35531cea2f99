#pragma once
// A tokenizer that came as arrays (token_arrays.h) as the files of a model's folder.
//
// Thread safety: a free function without state.
#include <string>

#include "tokenizer/token_arrays.h"

namespace quire {

struct TokenizerTexts {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
};

// What Tokenizer::from_json() makes the same tokenizer of as make_tokenizer() does of the arrays,
// and throws as that does.
TokenizerTexts tokenizer_texts(const TokenArrays& arrays);

}  // namespace quire
