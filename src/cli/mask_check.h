#pragma once
// The masks of tokens along texts: how long they take, and whether they have the texts' tokens.
//
// Thread safety: const methods may be called from several threads at once.
#include <filesystem>
#include <string>
#include <vector>

#include "grammar/tokens/language.h"
#include "grammar/tokens/token_trie.h"
#include "quire/tokenizer.h"

namespace quire::cli {

class MaskChecker {
 public:
  // Reads the tokenizer of a model's folder or GGUF file.
  explicit MaskChecker(const std::filesystem::path& model);

  // Takes the text token by token, as the tokenizer cuts it. Appends what each mask took to
  // `times_us`. Returns whether each token is in its mask and the text can end.
  bool check(const grammar::LanguagePtr& language, const std::string& text,
             std::vector<double>& times_us) const;

 private:
  Tokenizer tokenizer_;
  grammar::TokenTriePtr trie_;
};

}  // namespace quire::cli
