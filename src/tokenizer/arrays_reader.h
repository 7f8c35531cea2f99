#pragma once
// What token arrays say, in the parts that a tokenizer.json and its tokenizer_config.json have.
//
// Thread safety: a free function without state.
#include "tokenizer/token_arrays.h"
#include "tokenizer/tokenizer_file.h"

namespace quire::tokenizer_internal {

struct ReadArrays {
  TokenizerFile file;
  TokenizerConfig config;
};

// Throws Error as make_tokenizer() does.
ReadArrays read_arrays(const TokenArrays& arrays);

}  // namespace quire::tokenizer_internal
