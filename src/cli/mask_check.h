#pragma once
// Masks of tokens along texts: how long they take, and whether they contain the texts' tokens.
//
// Thread safety: const methods may be called from several threads at once.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "grammar/tokens/language.h"
#include "grammar/tokens/token_trie.h"
#include "quire/tokenizer.h"

namespace quire::cli {

struct MaskedText {
  bool is_generated = false;     // each token is in its mask, and the text can end
  std::vector<double> times_us;  // of each mask
  std::vector<int32_t> token_ids;
  std::vector<std::vector<uint32_t>> masks;  // a bit a token (token_trie.h)
};

class MaskChecker {
 public:
  // Reads the tokenizer of a model's folder or GGUF file.
  explicit MaskChecker(const std::filesystem::path& model);

  // Takes the text token by token, as the tokenizer cuts it, up to the first token that is not
  // allowed. With `keeps_masks` there is one more mask than allowed tokens: the one behind them.
  MaskedText check(const grammar::LanguagePtr& language, const std::string& text,
                   bool keeps_masks) const;

 private:
  Tokenizer tokenizer_;
  grammar::TokenTriePtr trie_;
};

}  // namespace quire::cli
